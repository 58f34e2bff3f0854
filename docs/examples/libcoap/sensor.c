/* A sensor with libcoap: at each start it measures, stores the event, sends all stored events, and ends.
 *
 *   sudo apt install gcc pkg-config libcoap3-dev
 *   cc -std=c99 -o sensor sensor.c $(pkg-config --cflags --libs libcoap-3-openssl)
 *   ./sensor ::1 5683 urn:dev:mac:00158d0001a2b3c4 state [oscore.conf]
 *
 * The arguments are gateway, port, device, a file for the sensor's state, and a configuration of OSCORE
 * (coap-oscore-conf(5)), which requires libcoap 4.3.2 (Debian 13). A timer starts the program again, so the time between
 * two starts is sleep. On a microcontroller put the state into the file system of the flash (LittleFS).
 *
 * It prints what it measured, how many events the gateway has stored on its disk, and how many are waiting for the next
 * start. Exit: 0 done, 1 the state cannot be saved, 2 wrong usage.
 */
#define _POSIX_C_SOURCE 200809L
#include <coap3/coap.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef ACK_TIMEOUT_MS
#define ACK_TIMEOUT_MS 2000
#endif
enum { QUEUE_MAX = 64, PACK_MAX = 8, BODY_BYTES_MAX = 1024, ANSWER_SECONDS_MAX = 90, OSCORE_BYTES_MAX = 1024 };
enum { WAITING = -1, NO_ANSWER = 0 };

typedef struct { uint32_t boot, id; float temperature; } event_t;

/* What a restart must not lose. `boot` and `id` are saved before an event is sent, so no later event has the same. */
typedef struct { uint32_t boot, id, queued; event_t queue[QUEUE_MAX]; } state_t;

static char state_file[256], sequence_file[256];
static int answered, with_oscore;

/* Replace a file in one step: after a power cut it is the old one or the new one. */
static int save(const char *path, const void *bytes, size_t length) {
  char fresh[300];
  snprintf(fresh, sizeof fresh, "%s.new", path);
  int file = open(fresh, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0) return 0;
  int done = write(file, bytes, length) == (ssize_t)length && fsync(file) == 0;
  return close(file) == 0 && done && rename(fresh, path) == 0;
}

static size_t load(const char *path, void *bytes, size_t length) {
  FILE *file = fopen(path, "rb");
  if (!file) return 0;
  size_t got = fread(bytes, 1, length, file);
  fclose(file);
  return got;
}

/* The part of CBOR that a sensor needs: the head of an item, text, and a float of 32 bits (RFC 8949 section 3). */
static uint8_t *head(uint8_t *out, uint8_t major, uint32_t value) {
  if (value < 24) { *out++ = major << 5 | value; return out; }
  *out++ = major << 5 | 26;
  for (int shift = 24; shift >= 0; shift -= 8) *out++ = value >> shift;
  return out;
}

static uint8_t *text(uint8_t *out, const char *value) {
  size_t length = strlen(value);
  out = head(out, 3, length);
  memcpy(out, value, length);
  return out + length;
}

/* A double that is the decimal which the probe means: a float of 32 bits would arrive as 21.100000381469727. */
static uint8_t *real(uint8_t *out, float value) {
  double decimal = (double)(int32_t)(value * 100 + (value < 0 ? -0.5f : 0.5f)) / 100; /* 0.01 is its resolution */
  uint64_t bits;
  memcpy(&bits, &decimal, 8);
  *out++ = 0xfb;
  for (int shift = 56; shift >= 0; shift -= 8) *out++ = bits >> shift;
  return out;
}

/* [{"device": …, "boot": …, "id": …, "data": {"temperature": …}}, …] */
static size_t pack(uint8_t *body, const char *device, const event_t *events, uint32_t count) {
  uint8_t *out = head(body, 4, count);
  for (uint32_t place = 0; place < count; place++) {
    out = head(out, 5, 4);
    out = text(text(out, "device"), device);
    out = head(text(out, "boot"), 0, events[place].boot);
    out = head(text(out, "id"), 0, events[place].id);
    out = head(text(out, "data"), 5, 1);
    out = real(text(out, "temperature"), events[place].temperature);
  }
  return out - body;
}

static coap_response_t on_response(coap_session_t *session, const coap_pdu_t *sent, const coap_pdu_t *received,
                                   const coap_mid_t message_id) {
  (void)session; (void)sent; (void)message_id;
  answered = coap_pdu_get_code(received);
  return COAP_RESPONSE_OK;
}

static void on_nack(coap_session_t *session, const coap_pdu_t *sent, const coap_nack_reason_t reason,
                    const coap_mid_t message_id) {
  (void)session; (void)sent; (void)reason; (void)message_id;
  answered = NO_ANSWER; /* the last retransmission was not answered either */
}

/* Send a confirmable POST to /e, with libcoap's retransmissions; return the code of the answer, 0 if there is none. */
static int request(coap_context_t *context, coap_session_t *session, const uint8_t *body, size_t length) {
  coap_pdu_t *pdu = coap_new_pdu(COAP_MESSAGE_CON, COAP_REQUEST_CODE_POST, session);
  uint8_t token[8], format = COAP_MEDIATYPE_APPLICATION_CBOR;
  size_t token_length;
  coap_session_new_token(session, &token_length, token);
  coap_add_token(pdu, token_length, token);
  coap_add_option(pdu, COAP_OPTION_URI_PATH, 1, (const uint8_t *)"e");
  coap_add_option(pdu, COAP_OPTION_CONTENT_FORMAT, 1, &format);
  coap_add_data(pdu, length, body);
  answered = WAITING;
  if (coap_send(session, pdu) == COAP_INVALID_MID) return NO_ANSWER;
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do {
    coap_io_process(context, 500);
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (answered == WAITING && now.tv_sec - begin.tv_sec < ANSWER_SECONDS_MAX);
  return answered == WAITING ? NO_ANSWER : answered;
}

/* Send the queue in packs, oldest first; an event is deleted once the gateway has it on disk. */
static void send_queue(coap_context_t *context, coap_session_t *session, const char *device, state_t *state) {
  uint8_t body[BODY_BYTES_MAX];
  while (state->queued) {
    uint32_t count = state->queued < PACK_MAX ? state->queued : PACK_MAX;
    int code = request(context, session, body, pack(body, device, state->queue, count));
    int kind = code >> 5;
    if (kind != 2 && (kind != 4 || code == 0x81 || code == 0x83 || code == 0x9D))
      return; /* no answer, 5.xx, 4.01, 4.03, 4.29: again later */
    /* libcoap (4.3.5) also hands over an answer that is not protected, and does not tell. Whoever hears the link could
     * send one: so a refusal deletes nothing. A forged 2.04 cannot be recognised here. */
    if (with_oscore && kind != 2) return;
    printf("%s %" PRIu32 "\n", kind == 2 ? "stored" : "refused", count); /* other 4.xx: never accepted */
    state->queued -= count;
    memmove(state->queue, state->queue + count, state->queued * sizeof *state->queue);
    save(state_file, state, sizeof *state);
  }
}

#if LIBCOAP_VERSION >= 4003002U
/* The sender sequence number must never be used twice (RFC 8613 section 7.5.1). */
static int save_sequence(uint64_t number, void *unused) {
  (void)unused;
  return save(sequence_file, &number, sizeof number);
}

static coap_session_t *open_oscore(coap_context_t *context, const coap_address_t *gateway, const char *configuration) {
  static uint8_t given[OSCORE_BYTES_MAX];
  uint64_t next = 0;
  coap_str_const_t memory = {load(configuration, given, sizeof given), given};
  load(sequence_file, &next, sizeof next);
  coap_oscore_conf_t *oscore = coap_new_oscore_conf(memory, save_sequence, NULL, next);
  return oscore ? coap_new_client_session_oscore(context, NULL, gateway, COAP_PROTO_UDP, oscore) : NULL;
}
#else
static coap_session_t *open_oscore(coap_context_t *context, const coap_address_t *gateway, const char *configuration) {
  (void)context; (void)gateway; (void)configuration;
  fprintf(stderr, "sensor: OSCORE requires libcoap 4.3.2 or newer\n");
  return NULL;
}
#endif

int main(int count, char **given) {
  if (count != 5 && count != 6) { fprintf(stderr, "usage: sensor GATEWAY PORT DEVICE STATE [OSCORE]\n"); return 2; }
  struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found;
  if (strlen(given[3]) > 64 || strlen(given[4]) > 200 || getaddrinfo(given[1], given[2], &hints, &found)) return 2;
  snprintf(state_file, sizeof state_file, "%s", given[4]);
  snprintf(sequence_file, sizeof sequence_file, "%s.sequence", given[4]);
  setvbuf(stdout, NULL, _IOLBF, 0);

  state_t state = {0};
  if (load(state_file, &state, sizeof state) != sizeof state) memset(&state, 0, sizeof state);
  state.boot++; /* the ids of this start begin at 1 */
  state.id = 0;
  if (state.queued < QUEUE_MAX) { /* a full queue: measure again when there is room */
    event_t event = {state.boot, ++state.id, 20 + (float)(state.boot % 50) / 10}; /* here: read the probe */
    state.queue[state.queued++] = event;
    if (!save(state_file, &state, sizeof state)) { perror(state_file); return 1; }
    printf("measured %" PRIu32 " %" PRIu32 "\n", event.boot, event.id);
  }

  coap_startup();
  coap_context_t *context = coap_new_context(NULL);
  coap_context_set_block_mode(context, COAP_BLOCK_USE_LIBCOAP | COAP_BLOCK_SINGLE_BODY);
  coap_register_response_handler(context, on_response);
  coap_register_nack_handler(context, on_nack);
  coap_address_t gateway;
  coap_address_init(&gateway);
  gateway.size = found->ai_addrlen;
  memcpy(&gateway.addr, found->ai_addr, found->ai_addrlen);
  coap_session_t *session = count == 6 ? open_oscore(context, &gateway, given[5])
                                       : coap_new_client_session(context, NULL, &gateway, COAP_PROTO_UDP);
  with_oscore = count == 6;
  if (!session) { fprintf(stderr, "sensor: no session\n"); return 2; }
  coap_fixed_point_t timeout = {ACK_TIMEOUT_MS / 1000, ACK_TIMEOUT_MS % 1000};
  coap_session_set_ack_timeout(session, timeout);
  send_queue(context, session, given[3], &state);
  printf("waiting %" PRIu32 "\n", state.queued);
  coap_session_release(session);
  coap_free_context(context);
  coap_cleanup();
  freeaddrinfo(found);
  return 0;
}
