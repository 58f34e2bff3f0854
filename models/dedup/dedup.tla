---- MODULE dedup ----
\* The job's dedup in time: the state and its window, fresh and late, wrong clocks, lost checkpoints. One event and its
\* copies, since events share nothing but the clock; `now` is the true time, by which brokers stamp what they append.
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Window,        \* the dedup window
  Skew,          \* by how much a clock that counts as correct may be ahead: a quarter of the window
  TimeMin,
  TimeMax,
  CopiesMax,     \* how many records there are of the event
  Errors,        \* of the driver's clock: 0, or how far it is behind (below 100), or 100 + how far it is ahead
  ClocksMax,     \* how often that changes
  CheckpointsMax \* how many checkpoints are lost

VARIABLES
  now,    \* the true time
  error,  \* of the driver's clock
  bound,  \* the earliest moment at which a copy of the event can have existed; -1 before it exists
  log,    \* the copies: when each was appended, and whether the gateway's clock was trusted
  done,   \* how many of them the job has read
  expiry, \* when the state forgets the event's key; -1 where the state lacks it
  latest, \* the latest time of a batch of this checkpoint; -1 before the first
  birth,  \* since when the state contains every record; -1 before the first batch
  ran,    \* when the latest batch ran: one at a moment
  rows,   \* how many rows the event has
  left    \* how often something may still go wrong

vars == <<now, error, bound, log, done, expiry, latest, birth, ran, rows, left>>

Wrong == {IF e < 100 THEN -e ELSE e - 100 : e \in Errors}
Max(a, b) == IF a > b THEN a ELSE b
Init ==
  /\ now = TimeMin /\ error \in Wrong /\ bound = -1 /\ log = <<>> /\ done = 0 /\ expiry = -1 /\ latest = -1 /\ birth = -1 /\ ran = -1
  /\ rows = 0
  /\ left = [clocks |-> ClocksMax, checkpoints |-> CheckpointsMax]

Tick == now < TimeMax /\ now' = now + 1 /\ UNCHANGED <<error, bound, log, done, expiry, latest, birth, ran, rows, left>>

\* The sensor's clock, or that of the gateway whose label is part of the identity, is ahead by less than the skew.
Occur ==
  /\ bound = -1 /\ \E wrong \in (1 - Skew)..(Skew - 1) : bound' = now + wrong
  /\ UNCHANGED <<now, error, log, done, expiry, latest, birth, ran, rows, left>>

\* A gateway forwards a copy, now or after any outage.
Receive(trusted) ==
  /\ bound # -1 /\ Len(log) < CopiesMax
  /\ log' = Append(log, [at |-> now, trusted |-> trusted])
  /\ UNCHANGED <<now, error, bound, done, expiry, latest, birth, ran, rows, left>>

SetClock ==
  /\ left.clocks > 0 /\ left' = [left EXCEPT !.clocks = @ - 1] /\ error' \in Wrong \ {error}
  /\ UNCHANGED <<now, bound, log, done, expiry, latest, birth, ran, rows>>

LoseCheckpoint ==
  /\ latest # -1 /\ left.checkpoints > 0 /\ left' = [left EXCEPT !.checkpoints = @ - 1]
  /\ expiry' = -1 /\ latest' = -1 /\ birth' = -1
  /\ UNCHANGED <<now, error, bound, log, done, ran, rows>>

----
\* A batch (cloud/stream/batch.py, cloud/table/freshness.py). Other events' records make batches at any time; those that
\* read nothing are left out where the state has begun and has nothing to forget.

time == now + error
\* The watermark: one window below the latest batch before.
Watermark == IF latest = -1 THEN -1 ELSE latest - Window
\* Spark drops every record of a batch below it: before that the job stops, or waits.
IsClockRight == time > Watermark

LatestAppend == IF log = <<>> THEN 0 ELSE log[Len(log)].at
\* All records of an earlier state were appended before now, whatever the driver's clock says.
Birth == IF birth = -1 THEN Max(time, LatestAppend) ELSE birth

IsFresh(copy) ==
  /\ copy.trusted
  /\ bound >= Birth + Skew
  /\ bound <= time + Skew
  /\ copy.at < time + Skew
  /\ bound > time - Window + Skew

\* The state drops all copies while it has the key; else one of the copies of a batch survives, whichever.
Survivors(n) == IF expiry # -1 \/ n = done \/ ~IsClockRight THEN {} ELSE {log[i] : i \in (done + 1)..n}
IsFound(copy) == ~IsFresh(copy) /\ rows > 0
Seen == time
\* Append times far ahead of the driver's clock show that it is behind: the state forgets these records too early.
Ahead(n) == {log[i].at : i \in {i \in (done + 1)..n : log[i].at >= time + Skew}}

Batch ==
  /\ time >= 0 /\ IsClockRight /\ ran < now /\ ran' = now
  /\ \E n \in done..Len(log) :
       /\ n > done \/ latest = -1 \/ expiry # -1
       /\ done' = n
       /\ IF Survivors(n) = {} THEN UNCHANGED rows
          ELSE \E copy \in Survivors(n) : rows' = IF IsFound(copy) THEN rows ELSE rows + 1
       /\ LET key == IF Survivors(n) # {} THEN Seen + Window ELSE expiry
          IN expiry' = IF key <= Watermark THEN -1 ELSE key
       /\ birth' = IF Ahead(n) = {} THEN Birth ELSE Max(Birth, CHOOSE at \in Ahead(n) : \A other \in Ahead(n) : other <= at)
  /\ latest' = Max(latest, time)
  /\ UNCHANGED <<now, error, bound, log, left>>

Next == Tick \/ Occur \/ (\E trusted \in BOOLEAN : Receive(trusted)) \/ SetClock \/ LoseCheckpoint \/ Batch
Spec == Init /\ [][Next]_vars

----
\* Guarantee 5: the table contains each event once, whatever the driver's clock.
OneRowInTime == rows <= 1

\* Guarantee 5: nothing that was read is missing.
ReadIsWritten == done > 0 => rows > 0
====
