---- MODULE delivery ----
\* Delivery exactly once: one event is one batch is one transaction, in one partition. Several agents are copies of one
\* card (clones): they have one transactional id. A transaction may be reported as ended and stay open in the partition
\* (torn); it then ends as the next one of the same id does.
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Events,
  Agents,      \* copies of one card
  LogMax,      \* longest log
  SessionsMax, \* how many sessions begin, of all agents
  KillsMax,    \* kills, and sessions that end by an error
  TearsMax,    \* ends of transactions that the broker does not carry out
  TimeoutsMax, \* open transactions that the coordinator aborts
  OffsetsMax   \* commits that the broker carries out without their offset, which is the marker

VARIABLES
  log,     \* the partition's records: label, and whether their transaction is open, committed or aborted
  ongoing, \* whether a transaction has begun whose outcome the coordinator has not decided
  newest,  \* the latest producer of the id: all others are fenced
  due,     \* the outcome that the coordinator has decided and not carried out in the partition
  marker,  \* the committed metadata of the group's offset: which run of which agent has committed last, and its number
  commits, \* who has committed, in order: agent and run
  agent,   \* of each agent: memory and session
  disk,    \* of each agent: intent, number of the settled transaction, marks
  left     \* how much may still go wrong

kafka == <<log, ongoing, newest, due, marker, commits>>
vars == <<kafka, agent, disk, left>>

None == [s |-> "none"]
\* In place of the marker that was in Kafka when a session was opened: no session of this run has held the id.
Unheld == [s |-> "unheld"]
Off == [s |-> "off", run |-> 0, found |-> Unheld, mark |-> {}, settled |-> 0]
Ended(outcome) == [i \in DOMAIN log |-> IF log[i].s = "open" THEN [log[i] EXCEPT !.s = outcome] ELSE log[i]]
IsOpen == \E i \in DOMAIN log : log[i].s = "open"
\* Readers of committed records get past an offset once nothing at or below it is open.
IsStable(o) == \A i \in DOMAIN log : i <= o => log[i].s # "open"

Init ==
  /\ log = <<>> /\ ongoing = FALSE /\ newest = 0 /\ due = "none" /\ marker = None /\ commits = <<>>
  /\ agent = [a \in 1..Agents |-> Off]
  /\ disk = [a \in 1..Agents |-> [intent |-> None, settled |-> 0, marked |-> {}]]
  /\ left = [kills |-> KillsMax, tears |-> TearsMax, timeouts |-> TimeoutsMax, offsets |-> OffsetsMax]

\* The end of a transaction: carried out in the partition, or torn.
End(outcome) ==
  \/ log' = Ended(outcome) /\ UNCHANGED left
  \/ IsOpen /\ left.tears > 0 /\ left' = [left EXCEPT !.tears = @ - 1] /\ UNCHANGED log

To(a, s) == agent' = [agent EXCEPT ![a].s = s]
IsFenced(a) == agent[a].producer # newest
Name(a) == [s |-> "marker", agent |-> a, run |-> agent[a].run, n |-> agent[a].n]

----
\* The process, and its marks

Start(a) ==
  /\ agent[a].s = "off"
  /\ agent' = [agent EXCEPT ![a] = [s |-> "closed", run |-> @.run + 1, found |-> Unheld, mark |-> disk[a].marked,
                                    settled |-> disk[a].settled]]
  /\ UNCHANGED <<kafka, disk, left>>

Kill(a) ==
  /\ agent[a].s # "off" /\ left.kills > 0 /\ left' = [left EXCEPT !.kills = @ - 1]
  /\ agent' = [agent EXCEPT ![a] = [Off EXCEPT !.run = agent[a].run]]
  /\ UNCHANGED <<kafka, disk>>

\* A mark and the note that its transaction is settled reach the disk together.
Flush(a) ==
  /\ agent[a].s # "off" /\ disk[a].marked # agent[a].mark
  /\ disk' = [disk EXCEPT ![a].marked = agent[a].mark, ![a].settled = agent[a].settled]
  /\ UNCHANGED <<kafka, agent, left>>

EndSession(a) ==
  /\ agent[a].s \notin {"off", "closed", "stopped"} /\ left.kills > 0 /\ left' = [left EXCEPT !.kills = @ - 1]
  /\ To(a, "closed")
  /\ UNCHANGED <<kafka, disk>>

----
\* A session begins (agent/forward/modes/exactly_once.py, open)

\* init_transactions ends what an earlier producer of the id has begun: as was decided, else by an abort.
InitTransactions(a) ==
  /\ agent[a].s = "closed" /\ newest < SessionsMax
  /\ newest' = newest + 1 /\ due' = "none" /\ ongoing' = FALSE
  /\ IF due # "none" THEN End(due) ELSE IF ongoing THEN End("aborted") ELSE UNCHANGED <<log, left>>
  /\ agent' = [agent EXCEPT ![a] = [s |-> "begun", run |-> @.run, found |-> @.found, mark |-> @.mark,
                                    settled |-> @.settled, producer |-> newest + 1]]
  /\ UNCHANGED <<marker, commits, disk>>

LookUp(a) ==
  /\ agent[a].s = "begun"
  /\ agent' = [agent EXCEPT ![a] = [s |-> "looked", run |-> @.run, found |-> @.found, mark |-> @.mark,
                                    settled |-> @.settled, producer |-> @.producer, seen |-> marker]]
  /\ UNCHANGED <<kafka, disk, left>>

Intent(a) == disk[a].intent
IsSettled(a) == IF Intent(a) = None THEN TRUE ELSE Intent(a).marker.n <= agent[a].settled

\* What holds readers back below the intent's record is aborted, by another transaction in the partition.
AbortHanging(a) ==
  /\ agent[a].s = "looked" /\ ~IsSettled(a) /\ ~IsStable(Intent(a).o) /\ due = "none"
  /\ IF IsFenced(a) THEN To(a, "closed") /\ UNCHANGED <<log, left>>
     ELSE End("aborted") /\ To(a, IF log' = log THEN "closed" ELSE "looked")
  /\ UNCHANGED <<ongoing, newest, due, marker, commits, disk>>

\* A foreign marker: another agent has committed since this one held the id, or the store is from a backup. One that was
\* there when this run's latest session was opened is known: later commits may have lost their offsets.
IsForeign(a) ==
  /\ agent[a].seen \notin {None, agent[a].found}
  /\ Intent(a) # None => agent[a].seen \notin {Intent(a).marker, Intent(a).previous}
  /\ ~(agent[a].seen.agent = a /\ agent[a].seen.run = agent[a].run)

IsVisible(a) == log[Intent(a).o] = [p |-> Intent(a).p, s |-> "committed"]

Settle(a) ==
  /\ agent[a].s = "looked" /\ IF IsSettled(a) THEN TRUE ELSE IsStable(Intent(a).o)
  /\ LET is_visible == ~IsSettled(a) /\ IsVisible(a)
         after == IF is_visible
                  THEN [agent[a] EXCEPT !.mark = @ \cup {Intent(a).p}, !.settled = Intent(a).marker.n] ELSE agent[a]
         n == IF Intent(a) = None THEN 0 ELSE Intent(a).marker.n
     IN agent' = [agent EXCEPT ![a] =
          IF IsForeign(a) /\ agent[a].found # Unheld THEN [after EXCEPT !.s = "stopped"]
          ELSE [s |-> "ready", run |-> after.run, found |-> after.seen, mark |-> after.mark, settled |-> after.settled,
                producer |-> after.producer, seen |-> after.seen, n |-> n, cleared |-> FALSE, p |-> 0, o |-> 0]]
  /\ UNCHANGED <<kafka, disk, left>>

----
\* One transaction (TransactionalSession._send)

\* Begun only with an event in hand; the broker has acked the record.
Fill(a) ==
  /\ agent[a].s = "ready" /\ due = "none"
  /\ \E p \in 1..Events \ agent[a].mark :
       /\ \A q \in 1..Events \ agent[a].mark : p <= q
       /\ IF IsFenced(a) THEN To(a, "closed") /\ UNCHANGED <<log, ongoing>>
          ELSE /\ Len(log) < LogMax /\ ongoing' = TRUE
               /\ log' = Append(log, [p |-> p, s |-> "open"])
               /\ agent' = [agent EXCEPT ![a].s = "filled", ![a].p = p, ![a].o = Len(log) + 1]
  /\ UNCHANGED <<newest, due, marker, commits, disk, left>>

\* The first transaction of a session in a partition is aborted: what hangs there from before ends with it.
Clear(a) ==
  /\ agent[a].s = "filled" /\ ~agent[a].cleared
  /\ IF IsFenced(a) THEN To(a, "closed") /\ UNCHANGED <<log, ongoing, left>>
     ELSE /\ End("aborted") /\ ongoing' = FALSE
          /\ agent' = IF log' = log THEN [agent EXCEPT ![a].s = "closed"]
                      ELSE [agent EXCEPT ![a].s = "ready", ![a].cleared = TRUE]
  /\ UNCHANGED <<newest, due, marker, commits, disk>>

\* The intent is written in a transaction of the store, which carries the marks that wait.
Intend(a) ==
  /\ agent[a].s = "filled" /\ agent[a].cleared
  /\ agent' = [agent EXCEPT ![a].s = "intended", ![a].n = @ + 1]
  /\ disk' = [disk EXCEPT
       ![a].intent = [s |-> "intent", marker |-> Name(a)', previous |-> agent[a].seen, p |-> agent[a].p, o |-> agent[a].o],
       ![a].marked = agent[a].mark, ![a].settled = agent[a].settled]
  /\ UNCHANGED <<kafka, left>>

\* The coordinator decides.
Decide(a) ==
  /\ ~IsFenced(a) /\ due' = "committed" /\ ongoing' = FALSE
  /\ commits' = Append(commits, [agent |-> a, run |-> agent[a].run])

\* Its answer may be lost, and so may the offset. Or the request is lost, which ends the session alike.
Commit(a) ==
  /\ agent[a].s = "intended"
  /\ \/ Decide(a) /\ marker' = Name(a) /\ To(a, "answered") /\ UNCHANGED left
     \/ /\ Decide(a) /\ left.offsets > 0 /\ left' = [left EXCEPT !.offsets = @ - 1]
        /\ To(a, "answered") /\ UNCHANGED marker
     \/ /\ Decide(a) /\ marker' = Name(a) /\ left.kills > 0 /\ left' = [left EXCEPT !.kills = @ - 1]
        /\ To(a, "closed")
     \/ /\ IsFenced(a) /\ To(a, "closed") /\ UNCHANGED <<due, ongoing, marker, commits, left>>
  /\ UNCHANGED <<log, newest, disk>>

\* Readers of committed records get past the record. A transaction that stays open ends the session.
AwaitStable(a) ==
  /\ agent[a].s = "answered"
  /\ IF IsStable(agent[a].o) THEN To(a, "passed") ELSE due = "none" /\ To(a, "closed")
  /\ UNCHANGED <<kafka, disk, left>>

\* The record is read back: readers get past it, too, if another agent has aborted it.
Mark(a) ==
  /\ agent[a].s = "passed"
  /\ IF log[agent[a].o] = [p |-> agent[a].p, s |-> "committed"]
     THEN agent' = [agent EXCEPT ![a].s = "ready", ![a].mark = @ \cup {agent[a].p}, ![a].settled = agent[a].n,
                                 ![a].seen = Name(a)]
     ELSE To(a, "closed")
  /\ UNCHANGED <<kafka, disk, left>>

----
\* The coordinator

CarryOut ==
  /\ due # "none" /\ due' = "none" /\ End(due)
  /\ UNCHANGED <<ongoing, newest, marker, commits, agent, disk>>

Timeout ==
  /\ ongoing /\ left.timeouts > 0 /\ left' = [left EXCEPT !.timeouts = @ - 1]
  /\ newest' = newest + 1 /\ ongoing' = FALSE /\ log' = Ended("aborted")
  /\ UNCHANGED <<due, marker, commits, agent, disk>>

----
Next ==
  \/ \E a \in 1..Agents :
       \/ Start(a) \/ Kill(a) \/ Flush(a) \/ EndSession(a)
       \/ InitTransactions(a) \/ LookUp(a) \/ AbortHanging(a) \/ Settle(a)
       \/ Fill(a) \/ Clear(a) \/ Intend(a) \/ Commit(a) \/ AwaitStable(a) \/ Mark(a)
  \/ CarryOut \/ Timeout

Spec == Init /\ [][Next]_vars

----
Visible(p) == {i \in DOMAIN log : log[i] = [p |-> p, s |-> "committed"] /\ IsStable(i)}

\* Guarantee 4, exactly once: a reader of committed records sees each label once.
VisibleOnce == \A p \in 1..Events : Cardinality(Visible(p)) <= 1

\* Guarantee 4, exactly once: nothing is marked before such a reader can see it.
MarkedIsVisible == \A a \in 1..Agents : \A p \in agent[a].mark : Visible(p) # {}

\* Guarantee 4: of two agents with one gateway id, the one that finds the other's marker sends nothing until it restarts.
CloneStops ==
  \A i, j, k \in DOMAIN commits :
    i < j /\ j < k /\ commits[i] = commits[k] => commits[j].agent = commits[i].agent

\* Guarantee 4: an agent whose card has no other copy never takes itself for a clone.
AloneIsNoClone == Agents = 1 => agent[1].s # "stopped"
====
