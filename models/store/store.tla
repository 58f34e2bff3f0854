---- MODULE store ----
\* The store: commits, commits of unknown outcome, marks, epochs, salvage, and copies of a card (clones, backups).
\* A row is an event and its label (epoch, sequence); its place in the sequence of rows is its position.
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Events,
  Cards,       \* how many cards there are: one in service, the others for copies of it
  FailuresMax, \* transactions that fail at some step
  KillsMax,    \* kills and power cuts
  CopiesMax,   \* copies of a card to another one
  DamagesMax,  \* events that the disk cannot read any more, and salvages without any
  GroupMax     \* most events in one commit

VARIABLES
  rows,    \* of each card: what its file and the unbroken part of its log hold
  unsure,  \* of each card: rows of a transaction whose COMMIT has failed, and that the next opening will find
  torn,    \* of each card: rows left in the log behind its unbroken part, with their positions
  damaged, \* of each card: the positions that the disk cannot read; -1: none, 0: only a suspicion
  marked,  \* of each card: positions marked forwarded, on disk
  agent,   \* of each card: the process that serves it
  acked,   \* of each card: events for which it has sent an ack
  sent,    \* rows that Kafka has received
  epochs,  \* how many epochs have begun
  left     \* how much may still go wrong

disk == <<rows, unsure, torn, damaged, marked>>
vars == <<disk, agent, acked, sent, epochs, left>>

Range(s) == {s[i] : i \in DOMAIN s}
Off == [s |-> "off"]
Row(e, epoch, sequence) == [e |-> e, epoch |-> epoch, sequence |-> sequence, gap |-> FALSE]
Gap(row) == [row EXCEPT !.gap = TRUE]
Stored(c) == {r.e : r \in {r \in Range(rows[c]) : ~r.gap}}
Declared(c) == {r.e : r \in {r \in Range(rows[c]) : r.gap}}

Init ==
  /\ rows = [c \in 1..Cards |-> <<>>] /\ unsure = [c \in 1..Cards |-> <<>>] /\ torn = [c \in 1..Cards |-> {}]
  /\ damaged = [c \in 1..Cards |-> -1] /\ marked = [c \in 1..Cards |-> {}]
  /\ agent = [c \in 1..Cards |-> Off] /\ acked = [c \in 1..Cards |-> {}]
  /\ sent = {} /\ epochs = 0
  /\ left = [failures |-> FailuresMax, kills |-> KillsMax, copies |-> CopiesMax, damages |-> DamagesMax]

----
\* Opening (agent/store/recovery): a new epoch each time

Serve(c, known) ==
  agent' = [agent EXCEPT ![c] = [s |-> "on", epoch |-> epochs + 1, used |-> 0, end |-> Len(rows'[c]), sure |-> TRUE,
                                 cut |-> FALSE, found |-> FALSE, knows |-> known, mark |-> marked[c]]]

\* A failed COMMIT is found, or has not reached the medium.
Found(c) == {rows[c], rows[c] \o unsure[c]}

Open(c) ==
  /\ agent[c] = Off /\ damaged[c] = -1
  /\ \E found \in Found(c) : rows' = [rows EXCEPT ![c] = found]
  /\ unsure' = [unsure EXCEPT ![c] = <<>>]
  /\ Serve(c, Stored(c)')
  /\ epochs' = epochs + 1
  /\ UNCHANGED <<torn, damaged, marked, acked, sent, left>>

\* What the salvage takes for a position: the newest row of the unbroken log or the file; else a row of the log's rest.
Rest(c, p) == {r.row : r \in {r \in torn[c] : r.p = p}}
Salvaged(c, found, p) ==
  IF p <= Len(found) /\ p # damaged[c] THEN found[p]
  ELSE IF Rest(c, p) # {} THEN CHOOSE row \in Rest(c, p) : TRUE
  ELSE Gap(found[p])

\* The salvage copies what is whole; all else it declares and forgets. The new file has no log.
Salvage(c) ==
  /\ agent[c] = Off /\ damaged[c] # -1
  /\ \E found \in Found(c) :
       LET next == Len(found) + 1
           end == IF Rest(c, next) # {} THEN next ELSE Len(found)
       IN rows' = [rows EXCEPT ![c] = [p \in 1..end |-> Salvaged(c, found, p)]]
  /\ unsure' = [unsure EXCEPT ![c] = <<>>] /\ torn' = [torn EXCEPT ![c] = {}] /\ damaged' = [damaged EXCEPT ![c] = -1]
  /\ Serve(c, Stored(c)')
  /\ epochs' = epochs + 1
  /\ UNCHANGED <<marked, acked, sent, left>>

Kill(c) ==
  /\ agent[c] # Off /\ left.kills > 0 /\ left' = [left EXCEPT !.kills = @ - 1]
  /\ agent' = [agent EXCEPT ![c] = Off]
  /\ UNCHANGED <<disk, acked, sent, epochs>>

----
\* Transactions (agent/store/write): the log is cut behind its last commit before one begins, if one has failed since

Groups(c) == {g \in UNION {[1..n -> Events \ agent[c].knows] : n \in 1..GroupMax} :
              \A i, j \in DOMAIN g : g[i] = g[j] => i = j}
Rows(c, group) == [i \in DOMAIN group |-> Row(group[i], agent[c].epoch, agent[c].used + i)]
Places(c, new) == {[p |-> agent[c].end + i, row |-> new[i]] : i \in DOMAIN new}
Cut(c) == IF agent[c].cut THEN torn[c] ELSE {}

\* Rows of a transaction of unknown outcome are deleted by the next one.
Base(c) == IF agent[c].sure THEN rows[c] \o unsure[c] ELSE rows[c]

\* The commit is on the medium; only then memory knows it, and the acks are sent.
Commit(c) ==
  /\ agent[c] # Off
  /\ \E group \in Groups(c) :
       LET new == Rows(c, group) IN
       /\ rows' = [rows EXCEPT ![c] = Base(c) \o new]
       /\ agent' = [agent EXCEPT ![c] = [@ EXCEPT !.used = @ + Len(new), !.end = Len(rows'[c]), !.sure = TRUE,
                                         !.cut = TRUE, !.found = TRUE, !.knows = @ \cup Range(group)]]
       /\ \E arrived \in SUBSET Range(group) : acked' = [acked EXCEPT ![c] = @ \cup arrived]
  /\ unsure' = [unsure EXCEPT ![c] = <<>>] /\ torn' = [torn EXCEPT ![c] = Cut(c)]
  /\ marked' = [marked EXCEPT ![c] = agent[c].mark]
  /\ UNCHANGED <<damaged, sent, epochs, left>>

\* Marks alone.
Flush(c) ==
  /\ agent[c] # Off /\ agent[c].mark # marked[c]
  /\ marked' = [marked EXCEPT ![c] = agent[c].mark]
  /\ rows' = [rows EXCEPT ![c] = Base(c)] /\ unsure' = [unsure EXCEPT ![c] = <<>>]
  /\ torn' = [torn EXCEPT ![c] = Cut(c)]
  /\ agent' = [agent EXCEPT ![c] = [@ EXCEPT !.sure = TRUE, !.cut = TRUE, !.found = TRUE]]
  /\ UNCHANGED <<damaged, acked, sent, epochs, left>>

\* A duplicate is acked once the log ends with the last commit that the connection has found.
Copy(c) ==
  /\ agent[c] # Off /\ \E e \in agent[c].knows : acked' = [acked EXCEPT ![c] = @ \cup {e}]
  /\ torn' = [torn EXCEPT ![c] = IF agent[c].found THEN @ ELSE {}]
  /\ agent' = [agent EXCEPT ![c] = [@ EXCEPT !.found = TRUE, !.cut = @ \/ ~agent[c].found]]
  /\ UNCHANGED <<rows, unsure, damaged, marked, sent, epochs, left>>

Fail(c) == agent[c] # Off /\ left.failures > 0 /\ left' = [left EXCEPT !.failures = @ - 1]

\* Rolled back before COMMIT: what SQLite has spilled stays in the log, with labels that are not assigned again.
RollBack(c) ==
  /\ Fail(c)
  /\ \E group \in Groups(c) : torn' = [torn EXCEPT ![c] = Cut(c) \cup Places(c, Rows(c, group))]
  /\ agent' = [agent EXCEPT ![c] = [@ EXCEPT !.cut = FALSE, !.epoch = epochs + 1, !.used = 0]]
  /\ epochs' = epochs + 1
  /\ UNCHANGED <<rows, unsure, damaged, marked, acked, sent>>

\* COMMIT fails: the connection is closed and opened again, under another epoch. What was written is found, or not.
FailToCommit(c) ==
  /\ Fail(c)
  /\ \E group \in Groups(c) :
       LET new == Rows(c, group) IN
       \/ unsure' = [unsure EXCEPT ![c] = new] /\ torn' = [torn EXCEPT ![c] = Cut(c)]
       \/ UNCHANGED unsure /\ torn' = [torn EXCEPT ![c] = Cut(c) \cup Places(c, new)]
  /\ agent' = [agent EXCEPT ![c] = [@ EXCEPT !.found = FALSE, !.sure = FALSE, !.cut = FALSE, !.epoch = epochs + 1, !.used = 0]]
  /\ epochs' = epochs + 1
  /\ UNCHANGED <<rows, damaged, marked, acked, sent>>

\* An event that Kafka cannot take, that is damaged, or that a full store drops: declared, and forgotten with its commit.
GiveUp(c) ==
  /\ agent[c] # Off /\ left.damages > 0 /\ left' = [left EXCEPT !.damages = @ - 1]
  /\ \E p \in 1..agent[c].end :
       /\ ~rows[c][p].gap
       /\ rows' = [rows EXCEPT ![c] = [Base(c) EXCEPT ![p] = Gap(@)]]
       /\ agent' = [agent EXCEPT ![c] = [@ EXCEPT !.knows = @ \ {rows[c][p].e}, !.sure = TRUE, !.cut = TRUE, !.found = TRUE]]
  /\ unsure' = [unsure EXCEPT ![c] = <<>>] /\ torn' = [torn EXCEPT ![c] = Cut(c)]
  /\ marked' = [marked EXCEPT ![c] = agent[c].mark]
  /\ UNCHANGED <<damaged, acked, sent, epochs>>

\* Kafka takes a new event; the mark is in memory first.
Forward(c) ==
  /\ agent[c] # Off
  /\ \E p \in 1..agent[c].end \ agent[c].mark :
       /\ ~rows[c][p].gap
       /\ sent' = sent \cup {rows[c][p]}
       /\ agent' = [agent EXCEPT ![c].mark = @ \cup {p}]
  /\ UNCHANGED <<disk, acked, epochs, left>>

----
\* Cards: an image of one, taken at any moment, is written to another; a sector fails

Clone(c, d) ==
  /\ c # d /\ agent[d] = Off /\ left.copies > 0 /\ left' = [left EXCEPT !.copies = @ - 1]
  /\ rows' = [rows EXCEPT ![d] = rows[c]] /\ unsure' = [unsure EXCEPT ![d] = unsure[c]]
  /\ torn' = [torn EXCEPT ![d] = torn[c]] /\ marked' = [marked EXCEPT ![d] = marked[c]]
  /\ damaged' = [damaged EXCEPT ![d] = damaged[c]] /\ acked' = [acked EXCEPT ![d] = {}]
  /\ UNCHANGED <<agent, sent, epochs>>

Damage(c) ==
  /\ agent[c] = Off /\ damaged[c] = -1 /\ left.damages > 0 /\ left' = [left EXCEPT !.damages = @ - 1]
  /\ \E p \in 0..Len(rows[c]) : damaged' = [damaged EXCEPT ![c] = p]
  /\ UNCHANGED <<rows, unsure, torn, marked, agent, acked, sent, epochs>>

----
Next ==
  \/ \E c \in 1..Cards :
       \/ Open(c) \/ Salvage(c) \/ Kill(c) \/ Damage(c)
       \/ Commit(c) \/ Flush(c) \/ Copy(c) \/ RollBack(c) \/ FailToCommit(c) \/ GiveUp(c) \/ Forward(c)
  \/ \E c, d \in 1..Cards : Clone(c, d)

Spec == Init /\ [][Next]_vars

----
\* Guarantees 1 and 7: an acknowledged event is in the store that has acked it, or declared as given up.
AckedIsStoredOrDeclared == \A c \in 1..Cards : acked[c] \subseteq Stored(c) \cup Declared(c)

\* Guarantees 2 and 7: only duplicates of stored events are recognised as duplicates; what is given up is forgotten.
KnownIsStored == \A c \in 1..Cards : agent[c] # Off => agent[c].knows \subseteq Stored(c)

\* Guarantee 2: a duplicate is not stored.
StoredOnce ==
  \A c \in 1..Cards : \A p, q \in DOMAIN rows[c] :
    rows[c][p].e = rows[c][q].e /\ p # q => rows[c][p].gap \/ rows[c][q].gap

\* Guarantee 4: no label is assigned to two events, whatever copy of a store is opened.
LabelOfOneEvent ==
  LET labelled == sent \cup UNION {Range(rows[c]) : c \in 1..Cards} IN
  \A a, b \in labelled : a.epoch = b.epoch /\ a.sequence = b.sequence => a.e = b.e

\* Guarantee 4: what is marked as forwarded was sent, and so need not be sent again.
MarkedWasSent ==
  \A c \in 1..Cards : \A p \in marked[c] :
    p \in DOMAIN rows[c] => rows[c][p].gap \/ rows[c][p] \in sent
====
