#!/bin/sh
# Kafka's kafka-acls.sh, as far as a node has ACLs.
echo "kafka-acls.sh: a Lattice node has no ACLs yet" >&2
exit 1
