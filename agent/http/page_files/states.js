// The states of an event: a few words, and a sentence.
export const STATES = {
  new: ["stored", "Stored on the gateway, not yet in Kafka."],
  forwarded: ["in Kafka", "In Kafka; the table has not confirmed it yet."],
  processed: ["in the table", "In the table: confirmed by its receipt."],
  lost: ["lost", "Lost, and declared by a gateway.gap event."],
};
