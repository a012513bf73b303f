#!/bin/sh
# Exits with 0 if Valkey answers PING, with 1 while it loads its data, and with 2 if it does
# not answer.
answer=$(timeout 3 valkey-cli -h 127.0.0.1 -p "$PORT" PING 2>&1)
case $answer in
PONG) exit 0 ;;
LOADING*) code=1 ;;
*) code=2 ;;
esac
echo "$answer"
exit $code
