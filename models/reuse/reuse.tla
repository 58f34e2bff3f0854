---- MODULE reuse ----
\* Counters that wrap: different events with equal fingerprints, since their identity is an id without a time. Gateways
\* remember a fingerprint for the retention; the job looks all of these events up in the table, whatever their age.
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Events,    \* how often the counter comes to the same id
  Gateways,
  Retention, \* identity.retention, and --retention of the job
  Window,    \* the dedup window of the job
  TimeMax

VARIABLES
  now,
  event,      \* the latest event with the id
  known,      \* of each gateway: when it accepted the fingerprint that it remembers; -1 for none
  first,      \* when the latest event was first accepted, by whichever gateway; -1 before
  final,      \* when it was last accepted
  waiting,    \* of each gateway: records to be forwarded
  log,        \* Kafka: records
  done,       \* how many of them the job has read
  state,      \* the job's state: keys and when each is forgotten
  latest,     \* time of the latest batch
  row,        \* the table's rows with the fingerprint
  quarantine

vars == <<now, event, known, first, final, waiting, log, done, state, latest, row, quarantine>>

Init ==
  /\ now = 0 /\ event = 0 /\ known = [g \in 1..Gateways |-> -1] /\ first = -1 /\ final = -1
  /\ waiting = [g \in 1..Gateways |-> <<>>] /\ log = <<>> /\ done = 0 /\ state = {} /\ latest = -1
  /\ row = {} /\ quarantine = {}

Tick ==
  /\ now < TimeMax /\ now' = now + 1
  /\ UNCHANGED <<event, known, first, final, waiting, log, done, state, latest, row, quarantine>>

\* The counter has wrapped. That it takes longer than the retention is a limit of guarantee 2.
Occur ==
  /\ event < Events /\ (event > 0 => first # -1 /\ now > final + Retention)
  /\ event' = event + 1 /\ first' = -1 /\ final' = -1
  /\ UNCHANGED <<now, known, waiting, log, done, state, latest, row, quarantine>>

\* A gateway hears the event, or a copy of it: known ones are acked and not stored.
IsKnown(g) == known[g] # -1 /\ now - known[g] <= Retention
Accept(g) ==
  /\ event > 0 /\ (first # -1 => now - first <= Retention)
  /\ IF IsKnown(g) THEN UNCHANGED <<known, waiting, first, final>>
     ELSE /\ known' = [known EXCEPT ![g] = now] /\ final' = now /\ first' = IF first = -1 THEN now ELSE first
          /\ \E trusted \in BOOLEAN :
               waiting' = [waiting EXCEPT ![g] = Append(@, [event |-> event, g |-> g, accepted |-> now,
                                                            trusted |-> trusted])]
  /\ UNCHANGED <<now, event, log, done, state, latest, row, quarantine>>

\* Records of an untrusted clock are dated by their append: that they do not wait long is a limit of guarantee 5.
Forward(g) ==
  /\ waiting[g] # <<>>
  /\ LET r == Head(waiting[g]) IN
     /\ r.trusted \/ r.accepted = now
     /\ log' = Append(log, [event |-> r.event, g |-> g, at |-> IF r.trusted THEN r.accepted ELSE now])
  /\ waiting' = [waiting EXCEPT ![g] = Tail(@)]
  /\ UNCHANGED <<now, event, known, first, final, done, state, latest, row, quarantine>>

----
\* A batch (cloud/table/id_reuse.py, cloud/table/lookup.py, cloud/table/lake.py)

\* The dedup key holds the retention period of acceptance.
Key(r) == r.at \div Retention
Distance(a, b) == IF a.at > b.at THEN a.at - b.at ELSE b.at - a.at
IsAnother(a, b) == a # b /\ Distance(a, b) > Retention

Records(n) == {log[i] : i \in (done + 1)..n}
Keys == {entry.key : entry \in state}
\* Of the records of a batch with one key any one survives; none where the state has the key.
Survivors(n) ==
  {s \in SUBSET {r \in Records(n) : Key(r) \notin Keys} :
     /\ \A a, b \in s : Key(a) = Key(b) => a = b
     /\ \A r \in Records(n) : Key(r) \notin Keys => \E a \in s : Key(a) = Key(r)}

First(s) == CHOOSE r \in s : \A other \in s : r.at < other.at \/ (r.at = other.at /\ r.g <= other.g)
Earlier(s) == IF row # {} THEN row ELSE {First(s)}
Reused(s) == {r \in s : \E earlier \in Earlier(s) : IsAnother(r, earlier)}

Batch ==
  /\ latest < now
  /\ \E n \in done..Len(log) :
       /\ done' = n
       /\ \E s \in Survivors(n) :
            /\ row' = IF row = {} /\ s # {} THEN {First(s)} ELSE row
            /\ quarantine' = quarantine \cup (IF s = {} THEN {} ELSE Reused(s))
            /\ state' = {entry \in state \cup {[key |-> Key(r), until |-> now + Window] : r \in s} :
                           entry.until > latest - Window}
  /\ latest' = now
  /\ UNCHANGED <<now, event, known, first, final, waiting, log>>

Next == Tick \/ Occur \/ Batch \/ \E g \in 1..Gateways : Accept(g) \/ Forward(g)
Spec == Init /\ [][Next]_vars

----
\* Guarantee 5: an event of a counter that has wrapped is in the table or in quarantine, never lost.
ReusedIdIsKept ==
  \A i \in 1..done : \E r \in row \cup quarantine : r.event = log[i].event

\* Guarantee 5: the table has one row with a fingerprint.
OneRowOfAnId == Cardinality(row) <= 1

\* Guarantee 5: a copy of the event in the table does not count as another event.
DuplicateIsNoReuse == \A r \in row : \A q \in quarantine : r.event # q.event
====
