---- MODULE path ----
\* The path of events from the sensor to the table and back: one gateway, one partition, delivery at least once.
\* Event p is stored at position p, with a label of its own, so that events, positions and labels are one number here;
\* store.tla is about labels. A batch holds one event. docs/verification.md says what is left out.
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Events,       \* how many events there are
  LogMax,       \* longest log
  KillsMax,     \* kills, of the agent or the job
  LossesMax,    \* what Kafka loses
  Losses,       \* of that: the "end" of the log, its "beginning" (retention), or the "topic" (made anew)
  ElectionsMax, \* elections of a leader that has everything
  OrdersMax,    \* what operators do: replay, another checkpoint, another table
  Tables,       \* how many tables there may be
  Repeats,      \* whether polls and receipts are repeated where nothing was committed: only progress needs it
  Rounds        \* whether a round of questions also confirms acks; where not, for fewer states, large_replays.cfg has it

VARIABLES
  sensor,  \* events 1..sensor are acked: the sensor sends one event until it has its ack, then the next
  queued,  \* whether its next event waits for the writer
  stored,  \* positions 1..stored have been committed
  kept,    \* positions whose events are in the store
  mark,    \* the state of each position, in memory
  marked,  \* the same on disk
  session, \* the forwarder's session: the topic's id and the leader epoch that it began with
  flight,  \* what it has sent and not marked: the broker's acks, as position |-> offset
  asked,   \* its question about topic and leader after acks
  view,    \* what the poller of receipts has read of Kafka
  pinned,  \* the table whose receipts count
  topic,   \* Kafka: the topic's id
  epoch,   \* the leader epoch
  log,     \* the records: label, leader epoch
  low,     \* the offset where the log begins
  group,   \* the group's committed offset: the receipt
  job,     \* where the job is
  plan,    \* the checkpoint
  commit,  \* of each table: the metadata of its last commit
  rows,    \* of each table: how many rows each event has
  left     \* how much may still go wrong

gateway == <<sensor, queued, stored, kept, mark, marked, session, flight, asked, view, pinned>>
forwarder == <<session, flight, asked>>
kafka == <<topic, epoch, log, low>>
cloud == <<job, plan, commit, rows>>
\* What no step can use any more does not distinguish states.
observed == <<sensor, queued, stored, kept, mark, IF left.kills = 0 THEN <<>> ELSE marked, session, flight, asked, view,
              pinned, kafka, group, cloud, left>>
vars == <<gateway, kafka, group, cloud, left>>

Positions == 1..Events
None == [s |-> "none"]
New == [s |-> "new"]
Sent(t, o, e) == [s |-> "forwarded", t |-> t, o |-> o, e |-> e]
Done(table) == [s |-> "processed", table |-> table]
States(m, s) == {p \in 1..stored : m[p].s = s}
Max(a, b) == IF a > b THEN a ELSE b
Highest(S) == CHOOSE n \in S : \A k \in S : k <= n
Lowest(S) == CHOOSE n \in S : \A k \in S : n <= k

Fresh == [id |-> 1, done |-> -1, end |-> -1, seen |-> {}, born |-> 0, again |-> FALSE]
Idle == [s |-> "off", table |-> 1, under |-> -1, fetched |-> <<>>, read |-> {}]

Init ==
  /\ sensor = 0 /\ queued = FALSE /\ stored = 0 /\ kept = {}
  /\ mark = [p \in Positions |-> New] /\ marked = [p \in Positions |-> New]
  /\ session = None /\ flight = <<>> /\ asked = None /\ view = None /\ pinned = 0
  /\ topic = 1 /\ epoch = 0 /\ log = <<>> /\ low = 0 /\ group = None
  /\ job = Idle /\ plan = Fresh
  /\ commit = [t \in 1..Tables |-> None] /\ rows = [t \in 1..Tables |-> [p \in Positions |-> 0]]
  /\ left = [kills |-> KillsMax, losses |-> LossesMax, elections |-> ElectionsMax, orders |-> OrdersMax]

----
\* The gateway: sensors, the writer (agent/store/write)

\* A copy of a stored event is acked without a commit.
Send ==
  /\ sensor < Events
  /\ IF sensor < stored THEN sensor' = sensor + 1 /\ UNCHANGED queued
     ELSE ~queued /\ queued' = TRUE /\ UNCHANGED sensor
  /\ UNCHANGED <<stored, kept, mark, marked, session, flight, asked, view, pinned, kafka, group, cloud, left>>

\* One transaction: the event, and the marks that wait. Then the ack arrives or is lost.
Commit ==
  /\ queued /\ queued' = FALSE
  /\ stored' = stored + 1 /\ kept' = kept \cup {stored + 1}
  /\ marked' = mark
  /\ sensor' \in {sensor, stored + 1}
  /\ UNCHANGED <<mark, session, flight, asked, view, pinned, kafka, group, cloud, left>>

Flush ==
  /\ marked # mark /\ marked' = mark
  /\ UNCHANGED <<sensor, queued, stored, kept, mark, session, flight, asked, view, pinned, kafka, group, cloud, left>>

\* Events leave in the order of their positions, each in a transaction that carries the marks.
Purge ==
  /\ kept # {}
  /\ LET p == Lowest(kept) IN mark[p].s = "processed" /\ kept' = kept \ {p}
  /\ marked' = mark
  /\ UNCHANGED <<sensor, queued, stored, mark, session, flight, asked, view, pinned, kafka, group, cloud, left>>

KillAgent ==
  /\ left.kills > 0 /\ left' = [left EXCEPT !.kills = @ - 1]
  /\ queued' = FALSE /\ mark' = marked /\ session' = None /\ flight' = <<>> /\ asked' = None /\ view' = None
  /\ UNCHANGED <<sensor, stored, kept, marked, pinned, kafka, group, cloud>>

----
\* The forwarder (agent/forward/modes/at_least_once.py, confirmation.py, in_flight.py)

\* The topic's id is read first, then the leader epochs.
Open ==
  /\ session = None /\ session' = [s |-> "opening", t |-> topic]
  /\ UNCHANGED <<sensor, queued, stored, kept, mark, marked, flight, asked, view, pinned, kafka, group, cloud, left>>

ReadEpochs ==
  /\ session.s = "opening" /\ session' = [s |-> "open", t |-> session.t, e |-> epoch]
  /\ UNCHANGED <<sensor, queued, stored, kept, mark, marked, flight, asked, view, pinned, kafka, group, cloud, left>>

InFlight == {flight[i].p : i \in DOMAIN flight}

\* The lowest new event, once all in flight are below it: after a return the session starts again with nothing in flight.
Produce ==
  /\ session.s = "open" /\ Len(log) < LogMax
  /\ LET ready == (States(mark, "new") \ InFlight) \cap kept IN
     /\ ready # {}
     /\ LET p == Lowest(ready) IN
        /\ \A q \in InFlight : q < p
        /\ log' = Append(log, [p |-> p, e |-> epoch])
        /\ flight' = Append(flight, [p |-> p, o |-> Len(log)])
  /\ UNCHANGED <<sensor, queued, stored, kept, mark, marked, session, asked, view, pinned, topic, epoch, low, group,
                 cloud, left>>

\* After acks, the forwarder asks for the topic's id and the leader at once. Which answers first is open; what was acked
\* before the question is covered.
Ask ==
  /\ session.s = "open" /\ flight # <<>> /\ asked = None
  /\ asked' \in {[s |-> "topic", n |-> Len(flight), t |-> topic], [s |-> "leader", n |-> Len(flight), e |-> epoch]}
  /\ UNCHANGED <<sensor, queued, stored, kept, mark, marked, session, flight, view, pinned, kafka, group, cloud, left>>

IsConfirmed ==
  /\ (IF asked.s = "topic" THEN asked.t ELSE topic) = session.t
  /\ (IF asked.s = "leader" THEN asked.e ELSE epoch) = session.e

Batch(i) == Sent(session.t, flight[i].o, session.e)

\* A round of questions that ends with its session: nothing is confirmed by it any more.
Without(round) == IF round = None THEN None ELSE [round EXCEPT !.acked = {}]

\* A batch is marked where topic and leader are what they were before the first send.
MarkForwarded ==
  /\ asked # None /\ asked' = None
  /\ IF IsConfirmed
     THEN /\ mark' = [p \in Positions |->
                        IF \E i \in 1..asked.n : flight[i].p = p
                        THEN Batch(CHOOSE i \in 1..asked.n : flight[i].p = p)
                        ELSE mark[p]]
          /\ flight' = SubSeq(flight, asked.n + 1, Len(flight))
          /\ UNCHANGED <<session, view>>
     ELSE session' = None /\ flight' = <<>> /\ view' = Without(view) /\ UNCHANGED mark
  /\ UNCHANGED <<sensor, queued, stored, kept, marked, pinned, kafka, group, cloud, left>>

\* A fatal error, an expiry, an ack that does not arrive: the next session sends again what is not marked.
EndSession ==
  /\ session # None /\ left.kills > 0 /\ left' = [left EXCEPT !.kills = @ - 1]
  /\ session' = None /\ flight' = <<>> /\ asked' = None /\ view' = Without(view)
  /\ UNCHANGED <<sensor, queued, stored, kept, mark, marked, pinned, kafka, group, cloud>>

\* `oncegate replay`, or a request of a former producer that arrives late.
Repeat(p) ==
  /\ left.orders > 0 /\ left' = [left EXCEPT !.orders = @ - 1]
  /\ p \in kept /\ Len(log) < LogMax /\ log' = Append(log, [p |-> p, e |-> epoch])
  /\ UNCHANGED <<gateway, topic, epoch, low, group, cloud>>

----
\* Receipts (agent/forward/receipts): the group's offsets, then the log's end and its leader, then the topic's id. The
\* same round confirms what the session had acked before its first question (round.py).

PollGroup ==
  /\ view = None /\ (States(mark, "forwarded") # {} \/ (Rounds /\ flight # <<>>)) /\ (group # None \/ Repeats)
  /\ view' = [s |-> "group", batches |-> States(mark, "forwarded"), acked |-> IF Rounds THEN InFlight ELSE {}, g |-> group]
  /\ UNCHANGED <<sensor, queued, stored, kept, mark, marked, forwarder, pinned, kafka, group, cloud, left>>

PollEnds ==
  /\ view.s = "group"
  /\ view' = [s |-> "ends", batches |-> view.batches, acked |-> view.acked, g |-> view.g, end |-> Len(log), e |-> epoch]
  /\ UNCHANGED <<sensor, queued, stored, kept, mark, marked, forwarder, pinned, kafka, group, cloud, left>>

\* The session marks what the round confirms, and hands it over; where it does not, the poller decides on the others.
Confirm ==
  /\ view.s = "ends" /\ view.acked # {} /\ session.s = "open"
  /\ IF topic = session.t /\ view.e = session.e
     THEN LET n == Cardinality({i \in DOMAIN flight : flight[i].p \in view.acked}) IN
          /\ mark' = [p \in Positions |->
                        IF \E i \in 1..n : flight[i].p = p
                        THEN Batch(CHOOSE i \in 1..n : flight[i].p = p)
                        ELSE mark[p]]
          /\ flight' = SubSeq(flight, n + 1, Len(flight))
          /\ asked' = IF asked = None THEN None ELSE [asked EXCEPT !.n = Max(0, @ - n)]
          /\ view' = [s |-> "topic", batches |-> view.batches \cup {p \in view.acked : mark'[p].s = "forwarded"},
                      acked |-> {}, g |-> view.g, end |-> view.end, e |-> view.e, t |-> topic]
          /\ UNCHANGED session
     ELSE session' = None /\ flight' = <<>> /\ asked' = None /\ view' = Without(view) /\ UNCHANGED mark
  /\ UNCHANGED <<sensor, queued, stored, kept, marked, pinned, kafka, group, cloud, left>>

Id == IF view.s = "topic" THEN view.t ELSE topic

\* Why a commit is no receipt for a batch (rules.py, objection).
Object(b, g, table) ==
  IF g.t # b.t THEN "hold"
  ELSE IF g.first > g.o THEN "hold"
  ELSE IF g.table # table THEN "hold"
  ELSE IF b.o < g.first THEN "return"
  ELSE "none"

DecideLog(b, g) ==
  IF g.e < b.e THEN "hold" ELSE "processed"

Decide(b, table) ==
  LET g == view.g IN
  IF Id # b.t THEN "return"
  ELSE IF (IF g = None THEN FALSE ELSE g.t = b.t /\ view.e < g.e) THEN "hold"
  ELSE IF view.end <= b.o THEN "return"
  ELSE IF g = None THEN "wait"
  ELSE IF g.o > view.end THEN "hold"
  ELSE IF Object(b, g, table) # "none" THEN Object(b, g, table)
  ELSE IF b.o >= g.o THEN "wait"
  ELSE DecideLog(b, g)

\* Whether the highest record of a leader that would be receipted is still there (truncation.py).
Survived(batches, e) ==
  LET p == CHOOSE p \in batches : mark[p].e = e /\ \A q \in batches : mark[q].e = e => mark[q].o <= mark[p].o
      o == mark[p].o
  IN o < Len(log) /\ o >= low /\ log[o + 1].p = p /\ log[o + 1].e = e

Pin == IF view.g = None THEN pinned
       ELSE IF Id # view.g.t THEN pinned
       ELSE IF pinned = 0 \/ view.g.succeeds = pinned THEN view.g.table ELSE pinned

Poll ==
  /\ view.s \in {"ends", "topic"} /\ view' = None
  /\ LET verdict == [p \in view.batches |-> Decide(mark[p], Pin)]
         receipted == {p \in view.batches : verdict[p] = "processed"}
         lost == {p \in receipted : mark[p].e # view.e /\ ~Survived(receipted, mark[p].e)}
     IN /\ mark' = [p \in Positions |->
             IF p \in lost THEN New
             ELSE IF p \in receipted THEN Done(Pin)
             ELSE IF p \in view.batches /\ verdict[p] = "return" THEN New
             ELSE mark[p]]
        /\ pinned' = IF receipted \ lost # {} THEN Pin ELSE pinned
  /\ UNCHANGED <<sensor, queued, stored, kept, marked, forwarder, kafka, group, cloud, left>>

----
\* Kafka

\* What executors have fetched ahead of a batch stays with them when the log loses it.
Keep == job' = IF job.under = -1 \/ job.fetched # <<>> THEN job ELSE [job EXCEPT !.fetched = log]

Elect ==
  /\ left.elections > 0 /\ left' = [left EXCEPT !.elections = @ - 1]
  /\ epoch' = epoch + 1
  /\ UNCHANGED <<gateway, topic, log, low, group, cloud>>

\* A leader that lacks the end of the log: an unclean election, or a power cut of the only broker.
Truncate(n) ==
  /\ "end" \in Losses
  /\ left.losses > 0 /\ left' = [left EXCEPT !.losses = @ - 1]
  /\ n >= low /\ n < Len(log) /\ log' = SubSeq(log, 1, n) /\ epoch' = epoch + 1 /\ Keep
  /\ UNCHANGED <<gateway, topic, low, group, plan, commit, rows>>

\* The topic is deleted and made anew.
Recreate ==
  /\ "topic" \in Losses
  /\ left.losses > 0 /\ left' = [left EXCEPT !.losses = @ - 1]
  /\ log # <<>> /\ log' = <<>> /\ low' = 0 /\ epoch' = 0 /\ topic' = topic + 1 /\ Keep
  /\ UNCHANGED <<gateway, group, plan, commit, rows>>

\* Retention deletes the beginning of the log.
Expire(n) ==
  /\ "beginning" \in Losses
  /\ left.losses > 0 /\ left' = [left EXCEPT !.losses = @ - 1]
  /\ n > low /\ n <= Len(log) /\ low' = n
  /\ UNCHANGED <<gateway, topic, epoch, log, group, cloud>>

----
\* The job (cloud/job.py, cloud/stream, cloud/table)

last == commit[job.table]
\* Where the leader's log has the end of a leader epoch (KIP-320).
EndOf(e) == IF e >= epoch THEN Len(log) ELSE low + Cardinality({i \in (low + 1)..Len(log) : log[i].e <= e})

\* TopicLog.check: the same topic, no part of what was read truncated, and long enough.
IsSameTopic(c) == c.t = topic
IsSameLog(c, end) ==
  /\ IsSameTopic(c)
  /\ c.end > 0 => (c.e = epoch \/ EndOf(c.e) >= c.end)
  /\ Len(log) >= Max(c.end, end)

Stop(state) == job' = [Idle EXCEPT !.s = state, !.table = job.table]

IsFirst == last = None \/ last.ck # plan.id
HasBatches == plan.done # -1 \/ plan.end # -1

\* offsets.check_log, and TopicLog.check at the start, but for a checkpoint that reads again
MayRead ==
  \/ last = None \/ (plan.again /\ IsFirst)
  \/ IsSameLog(last, 0) /\ (last.first = -1 \/ low <= last.end)

Start ==
  /\ job.s \in {"off", "stopped"}
  /\ IF ~MayRead \/ (IsFirst /\ HasBatches)
     THEN Stop("stopped") /\ UNCHANGED <<plan, commit>>
     ELSE IF ~IsFirst
     THEN job' = [job EXCEPT !.s = IF last.end > 0 THEN "giving" ELSE "idle"] /\ UNCHANGED <<plan, commit>>
     ELSE LET keeps == last # None /\ ~plan.again
              claim == [s |-> "commit", ck |-> plan.id, t |-> topic,
                        end |-> IF keeps THEN last.end ELSE 0, first |-> IF keeps THEN last.first ELSE -1,
                        e |-> IF keeps THEN last.e ELSE -1]
          IN /\ commit' = [commit EXCEPT ![job.table] = claim]
             /\ plan' = [plan EXCEPT !.done = IF keeps /\ last.end > 0 THEN last.end ELSE low, !.born = stored]
             /\ job' = [job EXCEPT !.s = IF claim.end > 0 THEN "giving" ELSE "idle"]
  /\ UNCHANGED <<gateway, kafka, group, rows, left>>

\* offsets.check_plan: Spark reads even a batch that the table has, and fails each time where records of it are gone.
IsUnreadable == plan.end # -1 /\ low > plan.done

\* Spark writes its plan before the batch runs; a batch that was not finished is run again as it was planned.
Plan ==
  /\ job.s = "idle"
  /\ IF IsUnreadable THEN Stop("stopped") /\ UNCHANGED plan
     ELSE /\ job' = [job EXCEPT !.s = "planned"]
          /\ IF plan.end # -1 THEN UNCHANGED plan
             ELSE \E n \in (plan.done + 1)..Len(log) : plan' = [plan EXCEPT !.end = n]
  /\ UNCHANGED <<gateway, kafka, group, commit, rows, left>>

\* Between plan and read: the topic, the log, the leaders. After an election the query begins anew, with new consumers.
Check ==
  /\ job.s = "planned"
  /\ job' = IF (last.first # -1 /\ plan.done > last.end) \/ ~IsSameLog(last, plan.end) THEN [job EXCEPT !.s = "stopped"]
            ELSE IF job.under \notin {-1, epoch} THEN [job EXCEPT !.under = -1, !.fetched = <<>>]
            ELSE [job EXCEPT !.s = "checked", !.under = epoch]
  /\ UNCHANGED <<gateway, kafka, group, plan, commit, rows, left>>

Records(source) == {source[i].p : i \in (plan.done + 1)..plan.end}
IsDone == last.end >= plan.end
Overlaps == plan.done < last.end
\* The state has every copy of what came into being since its birth (dedup.tla); all else is looked up in the table.
IsLate(p) == Overlaps \/ p <= plan.born
Survivors(source) == Records(source) \ plan.seen
Found(source) == {p \in Survivors(source) : IsLate(p) /\ rows[job.table][p] > 0}

\* The records are read, and the rows committed together with the offsets. Consumers may have fetched them earlier.
Write ==
  /\ job.s = "checked"
  /\ \E source \in {log, job.fetched} :
       /\ Len(source) >= plan.end /\ (source = log => low <= plan.done)
       /\ IF IsDone THEN UNCHANGED <<rows, commit>>
          ELSE /\ rows' = [rows EXCEPT ![job.table] =
                    [p \in Positions |-> @[p] + IF p \in Survivors(source) \ Found(source) THEN 1 ELSE 0]]
               /\ commit' = [commit EXCEPT ![job.table] =
                    [@ EXCEPT !.end = Max(@, plan.end), !.first = IF @ = -1 THEN plan.done ELSE @, !.e = job.under]]
       /\ job' = [job EXCEPT !.s = "written", !.read = Records(source)]
  /\ UNCHANGED <<gateway, kafka, group, plan, left>>

\* Spark fails where records of the plan are gone; systemd starts the job again.
FailToRead ==
  /\ job.s = "checked" /\ (Len(log) < plan.end \/ low > plan.done) /\ Stop("off")
  /\ UNCHANGED <<gateway, kafka, group, plan, commit, rows, left>>

\* Receipts are repeated, since Kafka may forget them, and checked each time.
RepeatReceipts ==
  /\ job.s = "idle" /\ last.end > 0 /\ Repeats /\ job' = [job EXCEPT !.s = "giving"]
  /\ UNCHANGED <<gateway, kafka, group, plan, commit, rows, left>>

\* The same check again, before the receipts.
CheckAgain ==
  /\ job.s \in {"giving", "written"}
  /\ job' = [job EXCEPT !.s = IF IsSameLog(last, 0) THEN IF job.s = "giving" THEN "due" ELSE "late" ELSE "stopped"]
  /\ UNCHANGED <<gateway, kafka, group, plan, commit, rows, left>>

\* With the batch's receipts given, Spark commits its state and notes that the batch is done.
Give ==
  /\ job.s \in {"due", "late"}
  /\ group' = [s |-> "offset", o |-> last.end, first |-> last.first, e |-> last.e, t |-> last.t, table |-> job.table,
               succeeds |-> job.table - 1]
  /\ plan' = IF job.s = "late" THEN [plan EXCEPT !.done = plan.end, !.end = -1, !.seen = @ \cup job.read] ELSE plan
  /\ job' = [job EXCEPT !.s = "idle", !.read = {}]
  /\ UNCHANGED <<gateway, kafka, commit, rows, left>>

KillJob ==
  /\ job.s \notin {"off", "stopped"} /\ left.kills > 0 /\ left' = [left EXCEPT !.kills = @ - 1]
  /\ Stop("off")
  /\ UNCHANGED <<gateway, kafka, group, plan, commit, rows>>

NewCheckpoint(again) == [Fresh EXCEPT !.id = plan.id + 1, !.again = again]

\* What the job asks for when it has stopped.
ReadAgain ==
  /\ job.s = "stopped" /\ Stop("off") /\ plan' = NewCheckpoint(TRUE)
  /\ UNCHANGED <<gateway, kafka, group, commit, rows, left>>

\* The checkpoint is lost; or another table takes over, with a new checkpoint as it has to be, or by mistake without one.
ChangeOrders ==
  /\ job.s \in {"off", "stopped"} /\ left.orders > 0 /\ left' = [left EXCEPT !.orders = @ - 1]
  /\ \/ Stop("off") /\ plan' = NewCheckpoint(FALSE)
     \/ /\ job.table < Tables
        /\ job' = [Idle EXCEPT !.table = job.table + 1]
        /\ plan' \in {plan, NewCheckpoint(FALSE)}
  /\ UNCHANGED <<gateway, kafka, group, commit, rows>>

----
Next ==
  \/ Send \/ \E p \in Positions : Repeat(p)
  \/ Commit \/ Flush \/ Purge \/ KillAgent
  \/ Open \/ ReadEpochs \/ Produce \/ Ask \/ MarkForwarded \/ EndSession
  \/ PollGroup \/ PollEnds \/ Confirm \/ Poll
  \/ Elect \/ Recreate \/ \E n \in 0..LogMax : Truncate(n) \/ Expire(n)
  \/ Start \/ Plan \/ Check \/ Write \/ FailToRead \/ RepeatReceipts \/ CheckAgain \/ Give \/ KillJob \/ ReadAgain \/ ChangeOrders

Spec == Init /\ [][Next]_vars

\* Every process goes on with its work; nothing has to go wrong.
Fair == WF_vars(Commit) /\ WF_vars(Purge) /\ WF_vars(Open) /\ WF_vars(ReadEpochs) /\ WF_vars(Produce) /\ WF_vars(Ask)
        /\ WF_vars(MarkForwarded) /\ WF_vars(PollGroup) /\ WF_vars(PollEnds) /\ WF_vars(Poll)
        /\ WF_vars(Start) /\ SF_vars(Plan) /\ WF_vars(Check) /\ WF_vars(Write) /\ WF_vars(FailToRead)
        /\ SF_vars(RepeatReceipts) /\ WF_vars(CheckAgain) /\ WF_vars(Give) /\ SF_vars(ReadAgain)
FairSpec == Spec /\ Fair

----
\* Guarantee 1: an acknowledged event is on disk.
AckedIsOnDisk == sensor <= stored

\* Guarantee 4: the broker has acked what counts as forwarded, at its offset, in the topic and under the leader noted.
ForwardedIsInLog ==
  \A p \in States(mark, "forwarded") :
    LET b == mark[p] IN b.t = topic /\ b.e = epoch => b.o < Len(log) /\ log[b.o + 1].p = p

\* Guarantee 4: a record that is in the log was appended by the leader noted: one leader has appended all of a batch.
AppendedByTheLeaderNoted ==
  \A p \in States(mark, "forwarded") :
    LET b == mark[p] IN b.t = topic /\ b.o < Len(log) /\ log[b.o + 1].p = p => log[b.o + 1].e = b.e

\* Guarantee 4: what is in the log and above the table's beginning is not sent again by the receipts.
ReturnedIsGone ==
  view.s \in {"ends", "topic"} => \A p \in view.batches :
    LET b == mark[p] IN
    b.s = "forwarded" /\ Decide(b, Pin) = "return" =>
      b.t # topic \/ Len(log) <= b.o \/ log[b.o + 1].p # p \/ log[b.o + 1].e # b.e \/ (view.g # None /\ b.o < view.g.first)

\* Guarantee 4: a stored event is kept until it is confirmed.
KeptUntilConfirmed == \A p \in 1..stored : p \in kept \/ \E t \in 1..Tables : rows[t][p] > 0

\* Guarantee 4: an event that counts as confirmed is in the table that has confirmed it.
ProcessedIsInTable == \A p \in States(mark, "processed") : rows[mark[p].table][p] > 0

\* Guarantee 5: rows and their offsets are committed together: what a commit says was read is in the table.
ReadIsInTable ==
  \A t \in 1..Tables :
    commit[t] # None /\ commit[t].first # -1 /\ commit[t].t = topic =>
      \A o \in Max(low, commit[t].first)..(commit[t].end - 1) :
        o < Len(log) /\ log[o + 1].e <= commit[t].e => rows[t][log[o + 1].p] > 0

\* Guarantee 5: the table contains each event once.
OneRowEach == \A t \in 1..Tables : \A p \in Positions : rows[t][p] <= 1

\* Guarantee 5: a batch whose records retention has deleted stops the job with what to do, unless it was read before.
UnreadableBatchStops == (plan.end # -1 /\ low > plan.done) ~> (job.s = "stopped" \/ plan.end = -1)

\* Guarantees 4 and 5: every acknowledged event is receipted in the end, and leaves the gateway.
EveryEventIsReceipted == \A p \in Positions : sensor >= p ~> p <= stored /\ p \notin kept
====
