# The server's image. `make image` builds it in .build/image, which contains the
# static binary berthd, and ca.crt, the certificates that only the build trusts.
#
# The server controls the engine through its socket, connects to its containers,
# and sets the firewall rules that isolate them:
#   docker run --network host --cap-add NET_ADMIN \
#     -v /var/run/docker.sock:/var/run/docker.sock -v berth:/data berth/berthd
# As one global service of a swarm: docs/operating/cluster.md.
FROM debian:trixie-slim
ARG DEBIAN_MIRROR
COPY ca.crt install.sh /berth/
RUN sh /berth/install.sh ca-certificates iptables && rm -rf /berth
COPY berthd /usr/local/bin/berthd
ENV BERTH_DATA_DIR=/data
VOLUME /data
EXPOSE 8080
ENTRYPOINT ["berthd"]
