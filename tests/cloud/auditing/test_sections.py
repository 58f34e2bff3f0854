"""What is changed, exchanged, removed or added in the table makes its section differ; the unknown is no finding."""

from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud.auditing import account, leaves, sections
from cloud.auditing import topic as topics
from cloud.auditing.topic import read
from cloud.gateways import GatewayFile
from cloud.stream.records import read_records
from cloud.table.rows import decode
from contract.mac import KEY_BYTES
from contract.topics import EVENTS
from tests.cloud.auditing.chains import ACCEPTED, EPOCH, chain
from tests.cloud.gateway import signed
from tests.cloud.tables import topic

pytestmark = pytest.mark.spark

CHANGES = {
    "device": "'urn:dev:ops:other'",
    "type": "'other'",
    "id": "'9'",
    "boot": "'9'",
    "event_time": f"timestamp_millis({ACCEPTED - 1})",
    "offset_ms": "-1",
    "received": f"timestamp_millis({ACCEPTED - 1})",
    "via": "'http'",
    "data": """'{"t":20.50}'""",
    "units": """'{"t":"K"}'""",
    "possible_duplicate_of": "unhex(repeat('00', 16))",
    "fingerprint": "unhex(repeat('00', 16))",
}
"""Another value of each column in the digest, as an expression."""
SECTIONS = "gateway string, epoch string, first bigint, last bigint, digest string, signed boolean, status string"
RANGES = "gateway string, epoch string, status string, first bigint, last bigint, since timestamp"


def only(sequence: int, column: Column, otherwise: str) -> Column:
    return F.when(F.col("sequence") == sequence, column).otherwise(F.col(otherwise))


def changed(name: str) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: rows.withColumn(name, only(6, F.expr(CHANGES[name]).cast(rows.schema[name].dataType), name))


def exchanged(rows: DataFrame) -> DataFrame:
    return rows.withColumn(
        "sequence", F.when(F.col("sequence").isin(6, 7), 13 - F.col("sequence")).otherwise(F.col("sequence"))
    )


def without(sequence: int) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: rows.filter(F.col("sequence") != sequence)


def with_another(rows: DataFrame) -> DataFrame:
    other = rows.filter(F.col("sequence") == 6).withColumn("data", F.lit('{"t":7}'))
    return rows.unionByName(other)


def with_a_copy(rows: DataFrame) -> DataFrame:
    return rows.unionByName(rows.filter(F.col("sequence") == 6))


def forged(rows: DataFrame) -> DataFrame:
    """Change a row, and the statement about it."""
    digest = F.regexp_replace("data", '"digest":"[0-9a-f]{8}', '"digest":"00000000')
    return changed("data")(rows).withColumn("data", only(9, digest, "data"))


def compared(
    rows: DataFrame,
    others: DataFrame,
    ranges: DataFrame,
    earlier: DataFrame | None = None,
    stating: DataFrame | None = None,
) -> dict[str, list[str]]:
    """Return the statuses of each gateway's sections, in order; without `stating`, the rows state them."""
    statements = sections.stated(rows if stating is None else stating)
    statements = statements if earlier is None else statements.unionByName(earlier)
    hashed = rows.withColumn("leaf", leaves.of_row(rows.columns))
    found = sections.compared(statements, hashed, others, ranges).orderBy("gateway", "first", "digest").collect()
    result: dict[str, list[str]] = {}
    for row in found:
        result.setdefault(row["gateway"], []).append(row["status"])
    return result


@pytest.fixture(scope="module")
def whole(spark: SparkSession) -> DataFrame:
    """Return the rows of an epoch of 14 events, with sections of four, three of which are stated."""
    rows = decode(read_records(topic(spark, chain(14, 4), ACCEPTED)))
    rows = rows.withColumn("possible_duplicate_of", F.lit(None).cast("binary"))
    return rows.localCheckpoint()


@pytest.mark.guarantee(8)
def test_what_was_tampered_with_is_found_in_its_section(spark: SparkSession, whole: DataFrame) -> None:
    cases: dict[str, Callable[[DataFrame], DataFrame]] = {
        **{f"changed {name}": changed(name) for name in CHANGES},
        "without a device": lambda rows: rows.withColumn("device", only(6, F.lit(None).cast("string"), "device")),
        "exchanged": exchanged,
        "removed": without(6),
        "another row": with_another,
        "doubled row": with_a_copy,
        "statement removed": without(9),
    }
    rows = [case(whole).withColumn("gateway", F.lit(name)) for name, case in cases.items()]
    accepted = [(name, EPOCH, account.ACCEPTED, 1, 14, None) for name in cases]
    others = whole.select(*account.LABEL, F.lit(b"").alias("leaf")).limit(0)
    found = compared(reduce(DataFrame.unionByName, [whole, *rows]), others, spark.createDataFrame(accepted, RANGES))
    assert found.pop("gw-1") == [sections.VERIFIED] * 3
    assert found.pop("statement removed") == [sections.VERIFIED, sections.DIFFERS]
    assert found.keys() == cases.keys() - {"statement removed"}
    for name, statuses in found.items():
        assert statuses == [sections.VERIFIED, sections.DIFFERS, sections.VERIFIED], name


@pytest.mark.guarantee(8)
def test_a_statement_that_was_changed_with_its_rows_is_found_by_what_an_earlier_audit_has_read(
    spark: SparkSession, whole: DataFrame
) -> None:
    others = whole.select(*account.LABEL, F.lit(b"").alias("leaf")).limit(0)
    ranges = spark.createDataFrame([("gw-1", EPOCH, account.ACCEPTED, 1, 14, None)], RANGES)
    found = compared(forged(whole), others, ranges, sections.stated(whole))["gw-1"]
    assert found.count(sections.DIFFERS) == 3  # the two statements about the section, and the section with the new one
    assert found.count(sections.VERIFIED) == 1


@pytest.mark.guarantee(8)
def test_a_table_that_was_changed_with_all_its_statements_is_found_by_the_signed_records(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Whoever can change the table, and send records in the gateway's name, has no key of it."""
    key, other = (bytes([number]) * KEY_BYTES for number in (1, 2))
    file = tmp_path / "gateways.csv"
    file.write_text(f"gw-1,{key.hex()}\ngw-2,{other.hex()}\n")
    file.chmod(0o600)
    true, false = chain(14, 4), chain(14, 4, celsius=20.6)
    sent = [signed(record, key) for record in true] + false + [signed(record, other) for record in false]
    sent += [signed(record, key, "another.topic") for record in false]
    rows = decode(read_records(topic(spark, false, ACCEPTED)))
    rows = rows.withColumn("possible_duplicate_of", F.lit(None).cast("binary"))
    others = rows.select(*account.LABEL, F.lit(b"").alias("leaf")).limit(0)
    ranges = spark.createDataFrame([("gw-1", EPOCH, account.ACCEPTED, 1, 14, None)], RANGES)
    assert compared(rows, others, ranges) == {"gw-1": [sections.VERIFIED] * 3}
    stating = topics.signed(topic(spark, sent), GatewayFile(file, EVENTS).signers)
    assert compared(rows, others, ranges, stating=stating) == {"gw-1": [sections.DIFFERS] * 3}


@pytest.mark.guarantee(8)
def test_what_no_record_has_signed_is_verified_by_the_next_section_that_one_has(spark: SparkSession) -> None:
    """But not over a section that is lacking."""
    names = {"v": sections.VERIFIED, "d": sections.DIFFERS, "p": sections.PENDING, "u": sections.UNKNOWN}
    cases = {
        "... vvv": "uuu",
        "..s vvv": "vvv",
        ".s. vvv": "vvu",
        "..s vdv": "udv",
        "s.s vpv": "vpv",
        "..s vvd": "uud",
        "..s v-v": "uv",
    }
    made = [
        (case, epoch, 4 * at + 1, 4 * at + 4, "", case[at] == "s", names[case[4 + at]])
        for case in cases
        for epoch in ("1", "2")
        for at in range(3)
        if case[4 + at] != "-"
    ]
    signs, found = {status: sign for sign, status in names.items()}, dict[tuple[str, str], str]()
    for row in sections.vouched(spark.createDataFrame(made, SECTIONS)).orderBy("first").collect():
        place = row["gateway"], row["epoch"]
        found[place] = found.get(place, "") + signs[row["status"]]
    assert found == {(case, epoch): told for case, told in cases.items() for epoch in ("1", "2")}


@pytest.mark.heavy
@pytest.mark.guarantee(8)
def test_labels_without_a_row_are_judged_by_their_status(spark: SparkSession, whole: DataFrame) -> None:
    expected = {
        account.GAP: sections.UNKNOWN,
        account.DUPLICATE: sections.UNKNOWN,
        account.QUARANTINED: sections.UNKNOWN,
        "of a newer audit": sections.UNKNOWN,
        account.PENDING: sections.PENDING,
        "": sections.PENDING,
        account.MISSING: sections.INCOMPLETE,
        account.UNWRITTEN: sections.INCOMPLETE,
        account.VANISHED: sections.INCOMPLETE,
        account.ACCEPTED: sections.DIFFERS,
    }
    rows = [without(6)(whole).withColumn("gateway", F.lit(f"a {status}")) for status in expected]
    rows += [without(6)(whole).withColumn("gateway", F.lit(name)) for name in ("copy", "copies that differ")]
    ranges = [(f"a {status}", EPOCH, status, 6, 6, None) for status in expected if status]
    hashed = whole.filter(F.col("sequence") == 6).select(*account.LABEL, leaves.of_row(whole.columns).alias("leaf"))
    of_copies, of_others = (hashed.withColumn("gateway", F.lit(name)) for name in ("copy", "copies that differ"))
    others = of_copies.unionByName(of_copies).unionByName(of_others)
    others = others.unionByName(of_others.withColumn("leaf", F.lit(bytes(32))))
    erased = F.when(F.col("sequence") == 6, F.lit(leaves.ERASED)).otherwise(F.col("device"))
    rows.append(whole.withColumn("device", erased).withColumn("gateway", F.lit("erased")))
    ranges += [("erased", EPOCH, account.ACCEPTED, 1, 14, None)]
    ranges.append(("copies that differ", EPOCH, account.DUPLICATE, 6, 6, None))
    frame = spark.createDataFrame(ranges, RANGES)
    found = compared(reduce(DataFrame.unionByName, rows), others, frame)
    assert found.pop("copies that differ")[1] == sections.UNKNOWN
    assert found.pop("erased") == [sections.VERIFIED, sections.UNKNOWN, sections.VERIFIED]
    assert found.pop("copy") == [sections.VERIFIED] * 3  # of a duplicate the topic's record is known
    assert {name: statuses[1] for name, statuses in found.items()} == {
        f"a {name}": one for name, one in expected.items()
    }


@pytest.mark.heavy
@pytest.mark.guarantee(8)
def test_a_quarter_of_a_million_erased_events_of_one_epoch_are_judged_by_their_labels(spark: SparkSession) -> None:
    """Each compared with each would take a quarter of an hour, and with a million hours."""
    size, count = 4_096, 64
    epoch, first = (F.lit("gw-1").alias("gateway"), F.lit(EPOCH).alias("epoch")), F.col("id") * size + 1
    sequence, leaf = (F.col("id") + 1).alias("sequence"), F.lit(None).cast("binary").alias("leaf")
    rows = spark.range(size * count).select(*epoch, sequence, leaf)
    digest, last = F.lit("00").alias("digest"), (first + (size - 1)).alias("last")
    stated = spark.range(count).select(*epoch, first.alias("first"), last, digest, F.lit(False).alias("signed"))
    ranges = spark.createDataFrame([("gw-1", EPOCH, account.ACCEPTED, 1, size * count, None)], RANGES)
    found = sections.compared(stated, rows, rows.limit(0), ranges).groupBy("status").count().collect()
    assert [tuple(row) for row in found] == [(sections.UNKNOWN, count)]


@pytest.mark.heavy
@pytest.mark.guarantee(8)
def test_what_a_later_gateway_adds_is_no_difference_and_hides_none(spark: SparkSession, whole: DataFrame) -> None:
    sent = topic(spark, chain(14, 4, b',"later":{"data":{"device":[1.50]}},"more":-1,"last":"},\\""'), ACCEPTED)
    rows = decode(read_records(sent))
    hashed = rows.select(*account.LABEL, leaves.of_row(rows.columns).alias("leaf"))
    tampered = changed("data")(rows).select(*account.LABEL, leaves.of_row(rows.columns).alias("leaf"))
    newer, usual = (
        account.newer(read(one, are_newer=True).withColumn("status", F.lit(account.ACCEPTED)))
        for one in (sent, topic(spark, chain(14, 4)))
    )
    assert (newer.count(), usual.count()) == (14, 0)
    statements, ranges = sections.stated(rows), spark.createDataFrame([], RANGES)
    others = hashed.limit(0)
    for of_rows, expected in (
        (hashed, [sections.VERIFIED] * 3),
        (tampered, [sections.VERIFIED, sections.DIFFERS, sections.VERIFIED]),
    ):
        found = sections.compared(statements, sections.as_stated(of_rows, newer), others, ranges)
        assert [row["status"] for row in found.orderBy("first").collect()] == expected
    said = [(kind, f'{{"contract":{number}}}') for kind in ("gateway.started", "gateway.gap") for number in (2, 3)]
    events = spark.createDataFrame(said, "type string, data string")
    assert [sections.have_newer(events.filter(F.col("data").contains(str(one)))) for one in (2, 3)] == [False, True]


@pytest.mark.guarantee(8)
def test_what_no_section_covers_is_unstated_or_unknown(spark: SparkSession, whole: DataFrame) -> None:
    stated = sections.stated(whole).withColumn("status", F.lit(sections.VERIFIED)).filter(F.col("first") != 5)
    other = stated.withColumn("epoch", F.lit("00000000000000a2"))
    states = spark.createDataFrame(
        [("gw-1", EPOCH, 14), ("gw-1", "00000000000000a2", 14)], "gateway string, epoch string, last bigint"
    )
    ended = spark.createDataFrame(
        [("gw-1", "00000000000000a2", 14, 1, None)],
        "gateway string, epoch string, ends bigint, followers bigint, since timestamp",
    )
    found = sections.uncovered(stated.unionByName(other), states, ended).orderBy("epoch", "first").collect()
    assert [(row["epoch"][-1], row["first"], row["last"], row["status"]) for row in found] == [
        ("1", 5, 8, sections.UNKNOWN),
        ("1", 13, 14, sections.UNSTATED),
        ("2", 5, 8, sections.UNKNOWN),
        ("2", 13, 14, sections.UNKNOWN),
    ]
