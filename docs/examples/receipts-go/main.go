// Writes every event of the topic into PostgreSQL once, and gives the gateways receipts: docs/receipts.md is the contract,
// R1 to C6 are its rules. All that it knows is in the database: whatever fails, it begins again there.
package main

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const answerTimeMax, repeatTime, recordsMax = 20 * time.Second, time.Minute, 2000
const sameID = 7 * 24 * time.Hour // the gateways' dedup_retention

// C1: a commit is durable when it returns. Of several instances one works; its lock ends with its connection.
const open = `SET synchronous_commit = on;
SELECT pg_advisory_lock(hashtext('receipts of ' || current_schema()));
CREATE TABLE IF NOT EXISTS result (name text NOT NULL, topic_id text NOT NULL);
CREATE TABLE IF NOT EXISTS places (partition int PRIMARY KEY, first bigint NOT NULL, next bigint NOT NULL, epoch int NOT NULL);
CREATE TABLE IF NOT EXISTS events (id text PRIMARY KEY, device text NOT NULL, type text NOT NULL, time timestamptz NOT NULL,
	label text NOT NULL, received bigint NOT NULL, value text NOT NULL);
CREATE TABLE IF NOT EXISTS quarantine (partition int, "offset" bigint, epoch int, reason text NOT NULL, key bytea, value bytea,
	headers text NOT NULL, PRIMARY KEY (partition, "offset", epoch))`

// R2. An id without a time that comes again later than gateways know it, under another label, is another event.
const insertEvent = `WITH new AS (INSERT INTO events VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING)
INSERT INTO quarantine SELECT $8, $9, $10, 'id reused', $11, $12, $13 FROM events
WHERE id = $1 AND $14 AND label <> $5 AND abs(received - $6) > $15 ON CONFLICT DO NOTHING`
const insertMalformed = `INSERT INTO quarantine VALUES ($1, $2, $3, 'malformed', $4, $5, $6) ON CONFLICT DO NOTHING`
const setPlace = `INSERT INTO places VALUES ($1, $2, $3, $4)
ON CONFLICT (partition) DO UPDATE SET first = excluded.first, next = excluded.next, epoch = excluded.epoch`

// Gateway, epoch and sequence are the label; then received, clock, shared, bound, and what a later gateway adds (R3).
var statement = regexp.MustCompile(`^([^ ]{1,127} [0-9a-f]{16} \d{1,16}) (-?\d{1,18}) ` +
	`(?:trusted|untrusted) (time|label|none) (?:-|-?\d{1,18})(?: .*)?$`)
var fingerprint, errStop = regexp.MustCompile(`^[0-9a-f]{32}$`), errors.New("an operator is needed")

// A place says that the result has all from first to next; epoch is that of the last of them.
type place struct {
	first, next int64
	epoch       int32
}

type consumer struct {
	topic, group, succeeds, name, topicID string
	client                                *kgo.Client
	admin                                 *kadm.Client
	database                              *pgx.Conn
	places                                map[int32]place
}

func main() {
	brokers, database := flag.String("brokers", "localhost:9092", ""), flag.String("database", "", "URL of PostgreSQL")
	topic, group := flag.String("topic", "oncegate.events", ""), flag.String("group", "oncegate-cloud", "")
	succeeds := flag.String("succeeds", "", "the results that this one replaces, with commas between them")
	flag.Parse()
	for {
		c := consumer{topic: *topic, group: *group, succeeds: *succeeds}
		err := c.run(context.Background(), *brokers, *database)
		if errors.Is(err, errStop) {
			log.Fatalf("stage=stopped reason=%q", err)
		}
		log.Printf("stage=ended error=%q", err)
		time.Sleep(time.Second)
	}
}

// run consumes until something fails.
func (c *consumer) run(ctx context.Context, brokers, database string) (err error) {
	if c.database, err = pgx.Connect(ctx, database); err != nil {
		return err
	}
	defer c.database.Close(context.Background())
	if c.client, err = kgo.NewClient(kgo.SeedBrokers(strings.Split(brokers, ",")...), kgo.MetadataMinAge(time.Second),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NoResetOffset())); err != nil { // R1, R5
		return err
	}
	defer c.client.Close()
	c.admin = kadm.NewClient(c.client)
	err = c.begin(ctx)
	for given := (time.Time{}); err == nil; {
		soon, cancel := context.WithTimeout(ctx, time.Second)
		polled := c.client.PollRecords(soon, recordsMax)
		cancel()
		if failed := polled.Err(); failed != nil && !errors.Is(failed, context.DeadlineExceeded) {
			return failed
		}
		if polled.NumRecords() > 0 || time.Since(given) > repeatTime { // C6
			err, given = c.write(ctx, polled.Records()), time.Now()
		}
	}
	return err
}

// begin reads the places, moves those that the log no longer has, and starts there: R4 to R7.
func (c *consumer) begin(ctx context.Context) error {
	_, err := c.database.Exec(ctx, open)
	now, failed := c.readTopicID(ctx)
	if err = errors.Join(err, failed); err == nil {
		err = c.database.QueryRow(ctx, `WITH new AS (INSERT INTO result SELECT gen_random_uuid(), $1
			WHERE NOT EXISTS (SELECT FROM result) RETURNING *) TABLE result UNION ALL TABLE new`, now).Scan(&c.name, &c.topicID)
	}
	if err != nil {
		return err
	}
	c.places, err = c.read(ctx)
	leaders, truncated, failed := c.check(ctx, c.places)
	earliest, missing := c.admin.ListStartOffsets(ctx, c.topic)
	if err = errors.Join(err, failed, missing, earliest.Error()); err != nil {
		return err
	}
	from := map[int32]kgo.Offset{}
	for p, listed := range earliest[c.topic] {
		at, isKnown := c.places[p]
		if !isKnown || at.next < listed.Offset {
			at = place{listed.Offset, listed.Offset, leaders[p].LeaderEpoch} // R6: gateways send again what is below
		} else if slices.Contains(truncated, p) {
			least := max(at.first, listed.Offset)            // others may be deleted below it
			at = place{least, least, leaders[p].LeaderEpoch} // R7: all of it is read again
		}
		if _, err := c.database.Exec(ctx, setPlace, p, at.first, at.next, at.epoch); err != nil {
			return err
		}
		c.places[p], from[p] = at, kgo.NewOffset().At(at.next).WithEpoch(at.epoch)
		log.Printf("stage=begin partition=%d first=%d next=%d epoch=%d", p, at.first, at.next, at.epoch)
	}
	c.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{c.topic: from})
	return nil
}

// write takes the records, moves the places in the same transaction, and gives the receipts (C1).
func (c *consumer) write(ctx context.Context, records []*kgo.Record) error {
	now, batch := maps.Clone(c.places), &pgx.Batch{}
	for _, r := range records {
		queue(batch, r)
		now[r.Partition] = place{now[r.Partition].first, r.Offset + 1, r.LeaderEpoch}
	}
	if err := c.checkAll(ctx, now); err != nil { // R7: what the log has lost is dropped
		return err
	}
	for p, at := range now {
		batch.Queue(setPlace, p, at.first, at.next, at.epoch)
	}
	c.places = now
	if err := pgx.BeginFunc(ctx, c.database, func(tx pgx.Tx) error { return tx.SendBatch(ctx, batch).Close() }); err != nil {
		return err
	}
	return c.giveReceipts(ctx)
}

func queue(batch *pgx.Batch, r *kgo.Record) {
	said, headers := map[string]string{}, ""
	for _, h := range r.Headers {
		said[h.Key] = string(h.Value)
		headers += fmt.Sprintf("%q=%s ", h.Key, base64.StdEncoding.EncodeToString(h.Value))
	}
	id, kind, value, device := said["ce_id"], said["ce_type"], string(r.Value), string(r.Key)
	words := statement.FindStringSubmatch(said["ce_oncegate"])
	at, err := time.Parse(time.RFC3339, said["ce_time"])
	texts := kind + device + said["ce_oncegate"] + value
	if words == nil || err != nil || said["ce_specversion"] != "1.0" || !strings.HasPrefix(kind, "oncegate.") || device == "" ||
		!fingerprint.MatchString(id) || !strings.HasPrefix(value, `{"fingerprint":"`+id+`"`) ||
		!strings.HasSuffix(value, "}") || !utf8.ValidString(texts) || strings.Contains(texts, "\x00") {
		batch.Queue(insertMalformed, r.Partition, r.Offset, r.LeaderEpoch, r.Key, r.Value, headers)
		return
	}
	received, _ := strconv.ParseInt(words[2], 10, 64)
	batch.Queue(insertEvent, id, device, kind[len("oncegate."):], at, words[1], received, value,
		r.Partition, r.Offset, r.LeaderEpoch, r.Key, r.Value, headers, words[3] == "none", sameID.Milliseconds())
}

// giveReceipts commits, as nobody's member (C5), what the database has, after the checks of C2.
func (c *consumer) giveReceipts(ctx context.Context) error {
	stored, err := c.read(ctx)
	if err == nil && !maps.Equal(stored, c.places) {
		err = errors.New("the database has other places")
	}
	if err = errors.Join(err, c.checkAll(ctx, stored)); err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	for p, at := range stored {
		says := fmt.Sprintf("oncegate:%s:%s:%020d:%s", c.name, c.succeeds, at.first, c.topicID)
		offsets.Add(kadm.Offset{Topic: c.topic, Partition: p, At: at.next, LeaderEpoch: at.epoch, Metadata: says})
	}
	return c.admin.CommitAllOffsets(ctx, c.group, offsets)
}

func (c *consumer) checkAll(ctx context.Context, read map[int32]place) error {
	leaders, truncated, err := c.check(ctx, read)
	if err == nil && (len(truncated) > 0 || len(leaders) != len(read)) {
		err = fmt.Errorf("the log has %d partitions, and has lost records in %v", len(leaders), truncated)
	}
	return err
}

// check returns the leaders' epochs, and where the log no longer has what was read (R7). It asks for the id last (R4).
func (c *consumer) check(ctx context.Context, read map[int32]place) (map[int32]kadm.ListedOffset, []int32, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeMax)
	defer cancel()
	wanted, truncated := kadm.OffsetForLeaderEpochRequest{c.topic: {}}, []int32(nil)
	for p, at := range read {
		wanted.Add(c.topic, p, at.epoch)
	}
	found, failed := c.admin.OffsetForLeaderEpoch(ctx, wanted)
	ends, err := c.admin.ListEndOffsets(ctx, c.topic)
	failed = errors.Join(failed, err, ends.Error())
	for p, at := range read {
		end, hasEnd := ends[c.topic][p]
		if a, isAnswered := found[c.topic][p]; !hasEnd || !isAnswered || a.Err != nil || end.LeaderEpoch < at.epoch {
			failed = errors.Join(failed, a.Err, fmt.Errorf("partition %d: no answer, or one of a former leader", p))
		} else if a.EndOffset < at.next || a.LeaderEpoch < at.epoch && at.next > at.first {
			truncated = append(truncated, p)
		}
	}
	id, err := c.readTopicID(ctx)
	if err == nil && id != c.topicID {
		err = fmt.Errorf("%w: topic %s was read, it is %s now: use another database, and -succeeds %s", errStop, c.topicID, id, c.name)
	}
	return ends[c.topic], truncated, errors.Join(failed, err)
}

func (c *consumer) readTopicID(ctx context.Context) (string, error) {
	topics, err := c.admin.ListTopics(ctx, c.topic)
	id := topics[c.topic].ID
	return base64.RawURLEncoding.EncodeToString(id[:]), errors.Join(err, topics[c.topic].Err)
}

func (c *consumer) read(ctx context.Context) (map[int32]place, error) {
	found, p, at := map[int32]place{}, int32(0), place{}
	rows, _ := c.database.Query(ctx, "SELECT partition, first, next, epoch FROM places") // its error comes with the rows
	_, err := pgx.ForEachRow(rows, []any{&p, &at.first, &at.next, &at.epoch}, func() error {
		found[p] = at
		return nil
	})
	return found, err
}
