---- MODULE traced_path ----
\* What an agent has noted of its work, as a behaviour of the path: TLC looks for steps that fit all lines.
\* Each line is a step of path.tla, or changes nothing there. Only the commit before a kill may lack its line.
EXTENDS path, lines  \* lines: Traces, the sequences of lines

VARIABLES
  trace,    \* the lines
  at,       \* the next of them
  waiting,  \* of each event: how many of its requests have no answer yet
  life      \* whether the agent is "down", "up", or its store was read at the end: "read"

notes == <<trace, at, waiting, life>>
Line == trace[at]
Is(event) == at <= Len(trace) /\ Line.event = event
Read == at' = at + 1 /\ UNCHANGED trace
Nobody == [p \in Positions |-> 0]

TraceInit == Init /\ trace \in Traces /\ at = 1 /\ waiting = Nobody /\ life = "down"

Opened == Is("opened") /\ life = "down" /\ life' = "up" /\ Read /\ UNCHANGED <<vars, waiting>>

\* The sensor sends its next event, or sends it again, or one that was acked.
Received ==
  /\ Is("received") /\ life = "up" /\ Line.p <= sensor + 1
  /\ waiting' = [waiting EXCEPT ![Line.p] = @ + 1] /\ Read /\ UNCHANGED life
  /\ IF Line.p > stored /\ ~queued THEN Send ELSE UNCHANGED vars

Committed ==
  /\ Is("committed") /\ life = "up" /\ Commit /\ stored' = Line.p /\ UNCHANGED sensor
  /\ Read /\ UNCHANGED <<waiting, life>>

Acked ==
  /\ Is("acked") /\ life = "up" /\ waiting[Line.p] > 0
  /\ waiting' = [waiting EXCEPT ![Line.p] = @ - 1] /\ Read /\ UNCHANGED life
  /\ IF Line.p > sensor THEN Send /\ sensor' = Line.p ELSE UNCHANGED vars

\* An end in order answers all requests.
Ended ==
  /\ Is("ended") /\ life = "up" /\ waiting = Nobody /\ ~queued
  /\ life' = "down" /\ Read /\ UNCHANGED <<vars, waiting>>

Killed == Is("killed") /\ KillAgent /\ life' = "down" /\ waiting' = Nobody /\ Read

CommittedBeforeKill == Is("killed") /\ life = "up" /\ Commit /\ UNCHANGED <<sensor, notes>>

\* The store has exactly the committed events.
ReadInTheEnd ==
  /\ Is("found") /\ life = "down" /\ Line.p = stored
  /\ life' = "read" /\ Read /\ UNCHANGED <<vars, waiting>>

TraceNext ==
  Opened \/ Received \/ Committed \/ Acked \/ Ended \/ Killed \/ CommittedBeforeKill \/ ReadInTheEnd

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, notes>>

\* Violated where a trace fits to its end.
NoneFits == ~(at > Len(trace) /\ life = "read")
====
