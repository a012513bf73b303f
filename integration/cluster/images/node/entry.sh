#!/bin/sh
# entry.sh [OPTION…]: runs the node's engine with the options, and again whenever it
# ends. While /run/engine-held exists the engine stays down.
set -eu
mount -o remount,rw /sys
sysctl -qw net.ipv4.ip_forward=1

# With cgroup v1 the engine's containers are below the node's own group, so that they
# share its limits and are paused with it.
own=$(sed -n 's/^[0-9]*:freezer://p' /proc/self/cgroup)

while :; do
	while [ -e /run/engine-held ]; do sleep 0.05; done
	rm -f /run/docker.pid
	dockerd --host unix:///run/docker.sock --host unix:///run/lab/docker.sock \
		--cgroup-parent "${own:-/berth-lab-$(hostname)}/stacks" "$@" || true
done
