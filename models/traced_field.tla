---- MODULE traced_field ----
\* What a field test has seen of single devices, as behaviours of the path: TLC looks for steps that fit all lines.
\* A device sends one event until it has its ack, then the next. Between its lines, the gateway may commit and connect; the
\* job reads the topic once, in the end. Whatever else may happen is not needed to explain what is seen.
EXTENDS path, lines, TLC  \* lines: Traces, sequences of lines

VARIABLES
  number, \* which of the traces
  at,     \* the next of its lines
  open    \* the event that the sensor has sent and whose ack it has not

notes == <<number, at, open>>
Trace == Traces[number]
Is(event) == at <= Len(Trace) /\ Trace[at].event = event
Line == Trace[at]
Read == at' = at + 1 /\ UNCHANGED number

TraceInit == Init /\ number \in DOMAIN Traces /\ at = 1 /\ open = 0

\* The sensor sends its next event, or sends it again. A request that is lost explains no more than one that arrives.
Requested ==
  /\ Is("sent") /\ Line.p = sensor + 1
  /\ open' = Line.p /\ Read
  /\ IF queued \/ stored >= Line.p THEN UNCHANGED vars ELSE Send

Acked ==
  /\ Is("acked") /\ Line.p = open /\ open' = 0 /\ Read
  /\ stored >= Line.p /\ Send

Committed == Commit /\ UNCHANGED <<sensor, notes>>

Connected == (Open \/ ReadEpochs) /\ UNCHANGED notes

\* A record is the next one of its session, or repeats an earlier one.
Recorded ==
  /\ Is("record") /\ Read /\ UNCHANGED open
  /\ IF \E i \in DOMAIN log : log[i].p = Line.p THEN Repeat(Line.p)
     ELSE Produce /\ log'[Len(log')].p = Line.p

\* The job reads the whole topic; without a record it has nothing to read.
Written ==
  /\ Is("table")
  /\ IF log = <<>> \/ job.s = "written" THEN Read /\ UNCHANGED <<vars, open>>
     ELSE (Start \/ (Plan /\ plan'.end = Len(log)) \/ Check \/ Write) /\ UNCHANGED notes

Rows == {i \in DOMAIN Trace : Trace[i].event = "row"}

\* The row was read from this offset, and is the only one of its event.
Row ==
  /\ Is("row") /\ Line.p \in Positions /\ Line.o < Len(log)
  /\ log[Line.o + 1].p = Line.p /\ rows[1][Line.p] = 1
  /\ \A i \in Rows : i < at => Trace[i].p # Line.p
  /\ Read /\ UNCHANGED <<vars, open>>

\* In the end everything that was acked is in the topic, and everything there in the table, if it was read.
Ended ==
  /\ Is("end")
  /\ \A p \in 1..sensor : \E i \in DOMAIN log : log[i].p = p
  /\ (\E i \in DOMAIN Trace : Trace[i].event = "table") => \A i \in DOMAIN log : \E n \in Rows : Trace[n].p = log[i].p
  /\ PrintT(<<"fits", number>>)
  /\ Read /\ UNCHANGED <<vars, open>>

\* A part of a trace ends anywhere.
Stopped == Is("stop") /\ PrintT(<<"fits", number>>) /\ Read /\ UNCHANGED <<vars, open>>

TraceNext == Requested \/ Acked \/ Committed \/ Connected \/ Recorded \/ Written \/ Row \/ Ended \/ Stopped

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, notes>>
====
