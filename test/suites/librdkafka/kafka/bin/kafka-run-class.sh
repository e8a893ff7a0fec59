#!/bin/sh
# Kafka's kafka-run-class.sh: runs a Java class beside Kafka's jars.
exec java -Xmx256m -cp "$CLASSPATH:$(dirname "$0")/../libs/*" "$@"
