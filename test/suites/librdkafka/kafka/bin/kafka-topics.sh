#!/bin/sh
# What librdkafka's tests ask of Kafka's kafka-topics.sh, done by the command
# "lattice topic" on the node of LATTICE_DATA. Anything else is refused.
set -eu
verb= topic= partitions=
refuse() {
	echo "kafka-topics.sh, by way of lattice topic: $*" >&2
	exit 1
}
n=$#
while [ "$n" -gt 0 ]; do # what is left at the end are the configs
	option=$1
	shift
	n=$((n - 1))
	case $option in
	--create | --alter | --delete)
		verb=${option#--}
		continue
		;;
	esac
	[ "$n" -gt 0 ] || refuse "$option has no value"
	value=$1
	shift
	n=$((n - 1))
	case $option in
	--bootstrap-server) ;;
	--topic) topic=$value ;;
	--partitions) partitions=$value ;;
	--replication-factor) [ "$value" = 1 ] || refuse "replication factor $value: there is one node" ;;
	--config) set -- "$@" --config "$value" ;;
	*) refuse "option $option" ;;
	esac
done
[ -n "$topic" ] || refuse "no topic"
case $verb in
create) exec "$LATTICE_BIN" topic create "$topic" --partitions "${partitions:--1}" "$@" ;;
alter) exec "$LATTICE_BIN" topic alter "$topic" --partitions "$partitions" ;;
delete) exec "$LATTICE_BIN" topic delete "$topic" --yes ;;
esac
refuse "neither --create nor --alter nor --delete"
