---- MODULE traced_schedule ----
\* What a schedule has noted of its agent, of Kafka and of the job, as a behaviour of the path: TLC looks for steps that fit
\* all lines. Each line is a step of path.tla. Steps that change nothing outside of a process have no line: TLC takes them
\* right before the line that needs them.
EXTENDS path, lines, TLC  \* lines: Lines; Traces, sequences of their numbers; Shared

VARIABLES
  number,  \* which of the traces
  at,      \* the next of its lines
  life,    \* whether the agent is "down" or "up"
  waiting, \* of each event: how many of its requests have no answer yet
  handed,  \* the events that the session has handed to its producer and that the log has not
  late,    \* of each event: how many requests of former producers may still arrive
  reported \* how many of the events in flight are reported to the session; NoSession without one

Trace == Traces[number]
Line == Lines[Trace[at]]
Is(event) == at <= Len(Trace) /\ Line.event = event
IsAny(events) == at <= Len(Trace) /\ Line.event \in events
Read == at' = at + 1 /\ UNCHANGED number
notes == <<number, at, life, waiting, handed, late, reported>>
NoSession == -1
\* Whether this line is still to come, before any of the others.
Ahead(event, others) ==
  \E i \in at..Len(Trace) :
    /\ Lines[Trace[i]].event = event
    /\ \A j \in at..(i - 1) : Lines[Trace[j]].event \notin others
\* A step that reads the leader's epoch is taken right before the line that needs it, or before an election.
IsReadFor(event, others) == Is(event) \/ (Is("elected") /\ Ahead(event, others))
Nobody == [p \in Positions |-> 0]
Handed == {handed[i] : i \in DOMAIN handed}
Orphaned == [p \in Positions |-> late[p] + IF p \in Handed THEN 1 ELSE 0]

TraceInit ==
  /\ Init /\ number \in {n \in DOMAIN Traces : Shared[n] = 0} /\ at = 1
  /\ life = "down" /\ waiting = Nobody /\ handed = <<>> /\ late = Nobody /\ reported = NoSession

\* A trace that begins as the first one goes on from there.
Branch ==
  /\ number = 1 /\ number' \in {n \in DOMAIN Traces : Shared[n] > 0 /\ Shared[n] = at - 1}
  /\ UNCHANGED <<vars, at, life, waiting, handed, late, reported>>

----
\* The agent's lives. What an opened store holds is what the model has on disk.

Opened ==
  /\ Is("opened") /\ life = "down" /\ life' = "up"
  /\ stored = Line.p /\ kept = Line.kept
  /\ States(mark, "forwarded") = Line.forwarded /\ States(mark, "processed") = Line.ps
  /\ Read /\ UNCHANGED <<vars, waiting, handed, late, reported>>

Ended ==
  /\ Is("ended") /\ life = "up" /\ life' = "down"
  /\ waiting = Nobody /\ ~queued /\ session = None /\ marked = mark
  /\ Read /\ UNCHANGED <<vars, waiting, handed, late, reported>>

Killed ==
  /\ Is("killed") /\ life = "up" /\ life' = "down" /\ KillAgent
  /\ waiting' = Nobody /\ handed' = <<>> /\ late' = Orphaned /\ reported' = NoSession /\ Read

\* A kill between a transaction and its line.
BeforeKill ==
  /\ Is("killed") /\ life = "up" /\ ((Commit /\ UNCHANGED sensor) \/ Purge) /\ UNCHANGED notes

\* Marks without a commit to carry them are written later, in any case before the next mark, or not at all.
WriteMarks == IsAny({"forwarded", "receipted", "killed", "ended"}) /\ life = "up" /\ Flush /\ UNCHANGED notes

----
\* The writer

\* The sensor sends its next event, or sends it again, or one that was acked.
Received ==
  /\ Is("received") /\ life = "up" /\ Line.p <= sensor + 1
  /\ waiting' = [waiting EXCEPT ![Line.p] = @ + 1] /\ Read /\ UNCHANGED <<life, handed, late, reported>>
  /\ IF Line.p > stored /\ ~queued THEN Send ELSE UNCHANGED vars

Committed ==
  /\ Is("committed") /\ life = "up" /\ Commit /\ stored' = Line.p /\ UNCHANGED sensor
  /\ Read /\ UNCHANGED <<life, waiting, handed, late, reported>>

Acked ==
  /\ Is("acked") /\ life = "up" /\ waiting[Line.p] > 0
  /\ waiting' = [waiting EXCEPT ![Line.p] = @ - 1] /\ Read /\ UNCHANGED <<life, handed, late, reported>>
  /\ IF Line.p > sensor THEN Send /\ sensor' = Line.p ELSE UNCHANGED vars

Purged ==
  /\ Is("purged") /\ life = "up" /\ Purge /\ kept' = kept \ {Line.p}
  /\ Read /\ UNCHANGED <<life, waiting, handed, late, reported>>

----
\* The forwarder. A record is in the model's log as soon as the broker has it, and in flight from then on; before that the
\* producer has it (handed), and after the end of its session it may still arrive (late).

BeginConnecting ==
  /\ IsReadFor("connected", {"produced", "disconnected", "killed"}) /\ life = "up" /\ reported = NoSession
  /\ (Open \/ ReadEpochs) /\ UNCHANGED notes
Connected ==
  /\ Is("connected") /\ reported = NoSession /\ session.s = "open" /\ reported' = 0
  /\ Read /\ UNCHANGED <<vars, life, waiting, handed, late>>

\* The lowest new event, after all that were sent before.
Produced ==
  /\ Is("produced") /\ reported # NoSession
  /\ LET ready == (States(mark, "new") \cap kept) \ (InFlight \cup Handed)
     IN ready # {} /\ Line.p = Lowest(ready) /\ \A q \in InFlight \cup Handed : q < Line.p
  /\ handed' = Append(handed, Line.p)
  /\ Read /\ UNCHANGED <<vars, life, waiting, late, reported>>

Appended ==
  /\ Is("appended") /\ Read /\ UNCHANGED <<life, waiting, reported>>
  /\ \/ /\ handed # <<>> /\ Head(handed) = Line.p /\ handed' = Tail(handed) /\ UNCHANGED late
        /\ Produce /\ log'[Len(log')].p = Line.p
     \/ /\ late[Line.p] > 0 /\ late' = [late EXCEPT ![Line.p] = @ - 1] /\ UNCHANGED handed
        /\ Repeat(Line.p)

\* The broker's acks arrive in the order of the log.
Reported ==
  /\ Is("reported") /\ reported # NoSession /\ reported < Len(flight) /\ flight[reported + 1].p = Line.p
  /\ reported' = reported + 1 /\ Read /\ UNCHANGED <<vars, life, waiting, handed, late>>

\* A batch is marked once all of it is reported and the topic is confirmed.
Confirm ==
  /\ IsReadFor("forwarded", {"disconnected", "killed"}) /\ asked = None
  /\ \E n \in 1..reported :
       /\ Is("forwarded") => {flight[i].p : i \in 1..n} = Line.ps
       /\ asked' \in {[s |-> "topic", n |-> n, t |-> topic], [s |-> "leader", n |-> n, e |-> epoch]}
  /\ UNCHANGED <<sensor, queued, stored, kept, mark, marked, session, flight, view, pinned, kafka, group, cloud, left, notes>>
Forwarded ==
  /\ Is("forwarded") /\ asked # None /\ {flight[i].p : i \in 1..asked.n} = Line.ps
  /\ MarkForwarded /\ UNCHANGED session /\ reported' = reported - Cardinality(Line.ps)
  /\ Read /\ UNCHANGED <<life, waiting, handed, late>>

Disconnected ==
  /\ Is("disconnected") /\ EndSession
  /\ handed' = <<>> /\ late' = Orphaned /\ reported' = NoSession /\ Read /\ UNCHANGED <<life, waiting>>

----
\* The poller of receipts. A batch of several events is marked once all of it is covered, and a poll may have read an earlier
\* offset than the present one: so it may mark fewer events than Poll, and none that Poll does not mark.

LookForReceipts ==
  /\ IsReadFor("receipted", {"killed", "ended"}) /\ life = "up" /\ (PollGroup \/ PollEnds) /\ UNCHANGED notes
Receipted ==
  /\ Is("receipted") /\ view.s = "ends" /\ view' = None
  /\ Line.ps # {} /\ Line.ps \subseteq view.batches
  /\ \A p \in Line.ps : Decide(mark[p], Pin) = "processed" /\ (mark[p].e = view.e \/ Survived(Line.ps, mark[p].e))
  /\ mark' = [p \in Positions |-> IF p \in Line.ps THEN Done(Pin) ELSE mark[p]] /\ pinned' = Pin
  /\ Read /\ UNCHANGED <<life, waiting, handed, late, reported>>
  /\ UNCHANGED <<sensor, queued, stored, kept, marked, forwarder, kafka, group, cloud, left>>

----
\* The job

agent == <<life, waiting, handed, late, reported>>
Prepare ==
  /\ UNCHANGED notes
  /\ \/ IsAny({"planned", "written", "receipt", "elected"}) /\ Start
     \/ IsAny({"written", "receipt", "elected"}) /\ ((plan.end # -1 /\ Plan) \/ Check)
     \/ IsAny({"receipt", "elected"}) /\ ((job.s = "checked" /\ IsDone /\ Write) \/ CheckAgain)

Planned == Is("planned") /\ plan.end = -1 /\ Plan /\ plan'.end = Line.p /\ Read /\ UNCHANGED agent

Written ==
  /\ Is("written") /\ job.s = "checked" /\ ~IsDone /\ Write
  /\ {p \in Positions : rows'[1][p] # rows[1][p]} = Line.ps
  /\ Read /\ UNCHANGED agent

\* A kill may come between the receipts and Spark's note that the batch is done: nothing but the kill may follow then.
Receipt ==
  /\ Is("receipt") /\ Give /\ group'.o = Line.p /\ Read /\ UNCHANGED agent
GiveWithoutEnd ==
  /\ Is("receipt") /\ job.s = "late" /\ last.end = Line.p
  /\ group' = [s |-> "offset", o |-> last.end, first |-> last.first, e |-> last.e, t |-> last.t, table |-> job.table,
               succeeds |-> job.table - 1]
  /\ job' = [job EXCEPT !.s = "killed", !.read = {}]
  /\ Read /\ UNCHANGED <<agent, gateway, kafka, plan, commit, rows, left>>

Elected == Is("elected") /\ Elect /\ Read /\ UNCHANGED agent

JobKilled ==
  /\ Is("job killed") /\ Read /\ UNCHANGED agent
  /\ IF job.s = "off" THEN UNCHANGED vars ELSE KillJob

----
\* In the end everything is acked, receipted and in the table once.
Settled ==
  /\ Is("settled") /\ life = "up" /\ at = Len(Trace)
  /\ stored = Line.p /\ sensor = stored /\ kept = Line.kept /\ waiting = Nobody
  /\ handed = <<>> /\ flight = <<>>
  /\ \A p \in 1..stored : mark[p].s = "processed" /\ rows[1][p] = 1
  /\ plan.end = -1 /\ plan.done = Len(log) /\ group.o = Len(log)
  /\ PrintT(<<"fits", number>>)
  /\ Read /\ UNCHANGED <<vars, agent>>

\* The beginning of a trace may end anywhere.
Stopped == Is("stop") /\ PrintT(<<"fits", number>>) /\ Read /\ UNCHANGED <<vars, agent>>

TraceNext ==
  \/ Branch \/ Opened \/ Ended \/ Killed \/ BeforeKill \/ WriteMarks \/ Received \/ Committed \/ Acked \/ Purged
  \/ BeginConnecting \/ Connected \/ Produced \/ Appended \/ Reported \/ Confirm \/ Forwarded \/ Disconnected
  \/ LookForReceipts \/ Receipted \/ Prepare \/ Planned \/ Written \/ Receipt \/ GiveWithoutEnd \/ JobKilled
  \/ Elected \/ Settled \/ Stopped

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, notes>>
====
