// The job's equivalent in Kafka Streams: keep the first record of each fingerprint, exactly once (v2), with the state in
// RocksDB and its changelog in Kafka. Fingerprint and value's check as the job does them, from the headers alone.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

public final class Dedup implements Processor<byte[], byte[], byte[], byte[]> {
    static final String SEEN = "seen";
    static final Duration WINDOW = Duration.ofHours(4);

    private ProcessorContext<byte[], byte[]> context;
    private KeyValueStore<byte[], Long> seen;

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.putAll(Map.of(
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0],
            StreamsConfig.APPLICATION_ID_CONFIG, arguments[3],
            StreamsConfig.STATE_DIR_CONFIG, arguments[4],
            StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2,
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
            StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 2000,
            StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest",
            StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 5000,
            StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 100,
            StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 262144));
        Topology topology = new Topology();
        var bytes = Serdes.ByteArray();
        topology.addSource("records", bytes.deserializer(), bytes.deserializer(), arguments[1]);
        topology.addProcessor("dedup", Dedup::new, "records");
        topology.addStateStore(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(SEEN), bytes, Serdes.Long()), "dedup");
        topology.addSink("survivors", arguments[2], bytes.serializer(), bytes.serializer(), "dedup");
        KafkaStreams streams = new KafkaStreams(topology, settings);
        streams.setStateListener((now, before) -> System.out.println("state=" + now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
        Thread.currentThread().join();
    }

    @Override
    public void init(ProcessorContext<byte[], byte[]> given) {
        context = given;
        seen = given.getStateStore(SEEN);
        // Fingerprints older than the window are dropped, as in the job's state.
        given.schedule(Duration.ofMinutes(10), PunctuationType.WALL_CLOCK_TIME, now -> {
            try (var entries = seen.all()) {
                entries.forEachRemaining(entry -> {
                    if (entry.value < now - WINDOW.toMillis()) {
                        seen.delete(entry.key);
                    }
                });
            }
        });
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
        Header mark = record.headers().lastHeader("ce_id");
        byte[] value = record.value();
        if (mark == null || value == null || !isWhole(mark.value(), value)) {
            return; // the job would put it into quarantine
        }
        if (seen.putIfAbsent(mark.value(), System.currentTimeMillis()) == null) {
            context.forward(record);
        }
    }

    private static boolean isWhole(byte[] mark, byte[] value) {
        byte[] front = "{\"fingerprint\":\"".getBytes(StandardCharsets.US_ASCII);
        if (value.length < front.length + mark.length + 1 || value[value.length - 1] != '}') {
            return false;
        }
        for (int at = 0; at < mark.length; at++) {
            if (value[front.length + at] != mark[at]) {
                return false;
            }
        }
        return true;
    }
}
