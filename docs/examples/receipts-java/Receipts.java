// Writes every event of the topic into PostgreSQL once, and gives the gateways receipts: docs/receipts.md is the contract,
// R1 to C6 are its rules. All that it knows is in the database: whatever fails, it begins again there.

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.sql.*;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.regex.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public final class Receipts {
    static final Duration ANSWER_TIME_MAX = Duration.ofSeconds(20), POLL_TIME = Duration.ofSeconds(1);
    static final long REPEAT_MILLIS = 60_000, SAME_ID_MILLIS = TimeUnit.DAYS.toMillis(7); // the gateways' dedup_retention
    // C1: a commit is durable when it returns. Of several instances one works; its lock ends with its connection.
    static final String OPEN = """
        SET synchronous_commit = on;
        SELECT pg_advisory_lock(hashtext('receipts of ' || current_schema()));
        CREATE TABLE IF NOT EXISTS result (name text NOT NULL, topic_id text NOT NULL);
        CREATE TABLE IF NOT EXISTS places
            (partition int PRIMARY KEY, first bigint NOT NULL, next bigint NOT NULL, epoch int NOT NULL);
        CREATE TABLE IF NOT EXISTS events (id text PRIMARY KEY, device text NOT NULL, type text NOT NULL,
            time timestamptz NOT NULL, label text NOT NULL, received bigint NOT NULL, value text NOT NULL);
        CREATE TABLE IF NOT EXISTS quarantine (partition int, "offset" bigint, epoch int, reason text NOT NULL,
            key bytea, value bytea, headers text NOT NULL, PRIMARY KEY (partition, "offset", epoch))""";
    // R2. An id without a time that comes again later than gateways know it, under another label, is another event.
    static final String INSERT_EVENT = """
        WITH r AS (SELECT ?::text AS id, ?::text AS device, ?::text AS type, ?::timestamptz AS time, ?::text AS label,
            ?::bigint AS received, ?::text AS value),
        new AS (INSERT INTO events SELECT * FROM r ON CONFLICT DO NOTHING)
        INSERT INTO quarantine SELECT ?, ?, ?, 'id reused', ?, ?, ? FROM events JOIN r USING (id)
        WHERE ? AND events.label <> r.label AND abs(events.received - r.received) > ? ON CONFLICT DO NOTHING""";
    static final String INSERT_MALFORMED = "INSERT INTO quarantine VALUES (?, ?, ?, 'malformed', ?, ?, ?) ON CONFLICT DO NOTHING";
    static final String RESULT = """
        WITH new AS (INSERT INTO result SELECT gen_random_uuid(), '%s' WHERE NOT EXISTS (SELECT FROM result) RETURNING *)
        TABLE result UNION ALL TABLE new""";
    static final String SET_PLACE = """
        INSERT INTO places VALUES (?, ?, ?, ?)
        ON CONFLICT (partition) DO UPDATE SET first = excluded.first, next = excluded.next, epoch = excluded.epoch""";
    // Gateway, epoch and sequence are the label; then received, clock, shared, bound, and what a later gateway adds (R3).
    static final Pattern STATEMENT = Pattern.compile("([^ ]{1,127} [0-9a-f]{16} [0-9]{1,16}) (-?[0-9]{1,18}) "
        + "(?:trusted|untrusted) (time|label|none) (?:-|-?[0-9]{1,18})(?: .*)?");

    /** Everything from first to next is in the result; epoch is that of the last record of it. */
    record Place(long first, long next, int epoch) {}
    private final String topic, succeeds;
    private final Connection database;
    private final Admin admin;
    private final KafkaConsumer<byte[], byte[]> reader;
    private String name, topicId;
    private Map<Integer, Place> places;

    public static void main(String[] arguments) throws InterruptedException {
        Map<String, String> given = new HashMap<>(Map.of("-brokers", "localhost:9092", "-topic", "oncegate.events",
            "-group", "oncegate-cloud", "-succeeds", "")); // and -database jdbc:postgresql://…
        for (int at = 0; at + 1 < arguments.length; at += 2) {
            given.put(arguments[at], arguments[at + 1]);
        }
        while (true) {
            try (var database = DriverManager.getConnection(given.get("-database"));
                    var admin = Admin.create(Map.of("bootstrap.servers", given.get("-brokers")));
                    var reader = new KafkaConsumer<>(Map.of("bootstrap.servers", given.get("-brokers"), "group.id",
                        given.get("-group"), "isolation.level", "read_committed", "auto.offset.reset", "none", // R1, R5
                        "enable.auto.commit", false, "max.poll.records", 2000), // C3
                        new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                new Receipts(given, database, admin, reader).run();
            } catch (Exception error) {
                System.err.println("stage=ended error=" + error);
                Thread.sleep(1000);
            }
        }
    }

    Receipts(Map<String, String> given, Connection database, Admin admin, KafkaConsumer<byte[], byte[]> reader) {
        this.topic = given.get("-topic");
        this.succeeds = given.get("-succeeds");
        this.database = database;
        this.admin = admin;
        this.reader = reader;
    }

    void run() throws Exception {
        begin();
        for (long given = 0; ; ) {
            var records = reader.poll(POLL_TIME);
            if (!records.isEmpty() || System.currentTimeMillis() - given > REPEAT_MILLIS) { // C6
                write(records);
                given = System.currentTimeMillis();
            }
        }
    }

    /** Read the places, move those that the log no longer has, and start there: R4 to R7. */
    void begin() throws Exception {
        try (var statement = database.createStatement()) {
            statement.execute(OPEN);
            var row = statement.executeQuery(RESULT.formatted(describe().topicId()));
            row.next();
            name = row.getString(1);
            topicId = row.getString(2);
        }
        places = read();
        Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
        checkId().partitions().forEach(one -> ends.put(new TopicPartition(topic, one.partition()), OffsetSpec.latest()));
        reader.assign(ends.keySet());
        Map<TopicPartition, Long> earliest = reader.beginningOffsets(ends.keySet(), ANSWER_TIME_MAX); // and who leads
        var leaders = admin.listOffsets(ends).all().get();
        earliest.forEach((p, first) -> places.compute(p.partition(), (number, at) -> at != null && at.next >= first ? at
            : new Place(first, first, leaders.get(p).leaderEpoch().get()))); // R6: gateways send again what is below
        for (TopicPartition p : truncated(places)) { // R7: all of it is read again
            long least = Math.max(places.get(p.partition()).first, earliest.get(p)); // below it, others may be deleted
            places.put(p.partition(), new Place(least, least, leaders.get(p).leaderEpoch().get()));
        }
        System.err.println("stage=begin places=" + places);
        store(places);
        checkAll(places);
    }

    /** Go to these places, ask the leaders whether their logs have what is below, and return where they have not (R7). */
    Set<TopicPartition> truncated(Map<Integer, Place> read) {
        read.forEach((p, at) -> reader.seek(new TopicPartition(topic, p), new OffsetAndMetadata(at.next, Optional.of(at.epoch), "")));
        try {
            read.keySet().forEach(p -> reader.position(new TopicPartition(topic, p), ANSWER_TIME_MAX));
            return Set.of();
        } catch (LogTruncationException error) {
            return error.offsetOutOfRangePartitions().keySet();
        }
    }

    /** Take the records, and move the places in the same transaction (C1). */
    void write(ConsumerRecords<byte[], byte[]> records) throws Exception {
        Map<Integer, Place> now = new HashMap<>(places);
        database.setAutoCommit(false);
        try (PreparedStatement event = database.prepareStatement(INSERT_EVENT);
                PreparedStatement malformed = database.prepareStatement(INSERT_MALFORMED)) {
            for (ConsumerRecord<byte[], byte[]> one : records) {
                queue(one, event, malformed);
                now.compute(one.partition(), (p, was) -> new Place(was.first, one.offset() + 1, one.leaderEpoch().get()));
            }
            checkAll(now); // R7: what the log has lost is dropped
            event.executeBatch();
            malformed.executeBatch();
        }
        store(now);
        database.setAutoCommit(true); // commits
        places = now;
        giveReceipts();
    }

    void queue(ConsumerRecord<byte[], byte[]> r, PreparedStatement event, PreparedStatement malformed) throws SQLException {
        Object[] whole = {r.partition(), r.offset(), r.leaderEpoch().get(), r.key(), r.value(),
            r.headers().toString().replace('\0', '?')};
        try {
            String id = header(r, "ce_id"), kind = header(r, "ce_type"), time = header(r, "ce_time"), value = text(r.value());
            Matcher words = STATEMENT.matcher(header(r, "ce_oncegate"));
            if (!words.matches() || !header(r, "ce_specversion").equals("1.0") || !kind.startsWith("oncegate.")
                    || !id.matches("[0-9a-f]{32}") || !value.startsWith("{\"fingerprint\":\"" + id + '"')
                    || !value.endsWith("}") || r.key().length == 0 || time.charAt(4) != '-') {
                throw new IllegalArgumentException();
            }
            add(event, id, text(r.key()), kind.substring("oncegate.".length()), OffsetDateTime.parse(time), words.group(1),
                Long.valueOf(words.group(2)), value, whole[0], whole[1], whole[2], whole[3], whole[4], whole[5],
                words.group(3).equals("none"), SAME_ID_MILLIS);
        } catch (RuntimeException | CharacterCodingException error) { // also where a header is missing
            add(malformed, whole);
        }
    }

    static String header(ConsumerRecord<byte[], byte[]> record, String name) throws CharacterCodingException {
        return text(record.headers().lastHeader(name).value());
    }

    static void add(PreparedStatement statement, Object... values) throws SQLException {
        for (int at = 0; at < values.length; at++) {
            statement.setObject(at + 1, values[at]);
        }
        statement.addBatch();
    }

    /** Return strict UTF-8 that PostgreSQL takes. */
    static String text(byte[] bytes) throws CharacterCodingException {
        String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        return text.indexOf('\0') < 0 ? text : text(new byte[] {-1});
    }

    /** Commit, as nobody's member (C5), what the database has, after the checks of C2. */
    void giveReceipts() throws Exception {
        checkAll(places);
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        places.forEach((p, at) -> offsets.put(new TopicPartition(topic, p), new OffsetAndMetadata(at.next,
            Optional.of(at.epoch), "oncegate:%s:%s:%020d:%s".formatted(name, succeeds, at.first, topicId))));
        reader.commitSync(offsets, ANSWER_TIME_MAX);
    }

    void checkAll(Map<Integer, Place> now) throws Exception {
        boolean isGood = places.equals(read()) && truncated(now).isEmpty();
        if (checkId().partitions().size() != now.size() || !isGood) {
            throw new IllegalStateException("the log has lost records, or has other partitions, or the database other places");
        }
    }

    /** Compare the topic's id with the one that was read: the last of all checks (R4). */
    TopicDescription checkId() throws Exception {
        TopicDescription now = describe();
        if (!topicId.equals(now.topicId().toString())) {
            System.err.println("stage=stopped reason='topic " + topicId + " was read, it is " + now.topicId()
                + " now: use another database, and -succeeds " + name + "'");
            System.exit(1);
        }
        return now;
    }

    TopicDescription describe() throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get(ANSWER_TIME_MAX.toSeconds(), TimeUnit.SECONDS).get(topic);
    }

    Map<Integer, Place> read() throws SQLException {
        Map<Integer, Place> found = new HashMap<>();
        try (var statement = database.createStatement();
                var rows = statement.executeQuery("SELECT partition, first, next, epoch FROM places")) {
            while (rows.next()) {
                found.put(rows.getInt(1), new Place(rows.getLong(2), rows.getLong(3), rows.getInt(4)));
            }
        }
        return found;
    }

    void store(Map<Integer, Place> now) throws SQLException {
        try (var statement = database.prepareStatement(SET_PLACE)) {
            for (var one : now.entrySet()) {
                add(statement, one.getKey(), one.getValue().first, one.getValue().next, one.getValue().epoch);
            }
            statement.executeBatch();
        }
    }
}
