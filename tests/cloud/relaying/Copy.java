import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;

/** A job of Flink in one process, which adds each record's value to a file as a line: SERVERS TOPIC GROUP FILE. */
public final class Copy {
    public static void main(String[] words) throws Exception {
        String file = words[3];
        StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(1, new Configuration());
        job.enableCheckpointing(Duration.ofSeconds(1).toMillis());
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(words[0])
            .setTopics(words[1])
            .setGroupId(words[2])
            .setProperty("isolation.level", "read_committed")
            .setStartingOffsets(OffsetsInitializer.committedOffsets(OffsetResetStrategy.EARLIEST))
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        job.fromSource(source, WatermarkStrategy.noWatermarks(), "topic")
            .map(value -> {
                Files.writeString(Path.of(file), value + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
                return value;
            })
            .sinkTo(new DiscardingSink<>());
        job.execute();
    }
}
