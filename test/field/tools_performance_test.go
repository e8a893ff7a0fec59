package field

func (k kit) producerPerformance() {
	k.shows("20000 records sent", nil, "ProducerPerformance", "--topic", "perf", "--num-records", "20000", "--record-size", "100", "--throughput", "-1", "--command-property", "bootstrap.servers="+k.at)
}

func (k kit) consumerPerformance() {
	k.shows(", 20000, ", nil, "ConsumerPerformance", "--topic", "perf", "--num-records", "20000")
}

func (k kit) latency() {
	k.shows("Percentiles: 50th = ", nil, "EndToEndLatency", "--topic", "latency", "--num-records", "100", "--record-size", "100", "--producer-acks", "all")
}
