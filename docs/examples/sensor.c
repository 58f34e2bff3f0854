/* A sensor in C: an event over CoAP in CBOR, retransmitted as in RFC 7252, and deleted only once it is on disk.
 *
 *   cc -std=c99 -Wall -o sensor sensor.c && ./sensor ::1 5683 urn:dev:mac:00158d0001a2b3c4 1 17 21.5
 *
 * The arguments are gateway, port, device, boot count, event id, temperature. On a microcontroller use the sockets of
 * lwIP or Zephyr; the rest is unchanged. Exit: 0 the gateway has the event, 1 send it again later, 2 it is invalid.
 */
#define _POSIX_C_SOURCE 200112L
#include <netdb.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ACK_TIMEOUT_MS = 2000, MAX_RETRANSMIT = 4, SEPARATE_MS = 60000, BYTES_MAX = 256, TOKEN_BYTES = 4 };

/* The part of CBOR that a sensor needs: the head of an item, text, and a float of 32 bits (RFC 8949 section 3). */
static size_t head(uint8_t *out, uint8_t major, uint32_t value) {
  if (value < 24) { out[0] = major << 5 | value; return 1; }
  if (value < 256) { out[0] = major << 5 | 24; out[1] = value; return 2; }
  out[0] = major << 5 | 26;
  for (int byte = 0; byte < 4; byte++) out[1 + byte] = value >> (24 - 8 * byte);
  return 5;
}

static size_t text(uint8_t *out, const char *value) {
  size_t length = strlen(value), used = head(out, 3, length);
  memcpy(out + used, value, length);
  return used + length;
}

/* A double that is the decimal which the probe means: a float of 32 bits would arrive as 21.100000381469727. */
static size_t real(uint8_t *out, float value) {
  double decimal = (double)(int32_t)(value * 100 + (value < 0 ? -0.5f : 0.5f)) / 100; /* 0.01 is its resolution */
  uint64_t bits;
  memcpy(&bits, &decimal, 8);
  out[0] = 0xfb;
  for (int byte = 0; byte < 8; byte++) out[1 + byte] = bits >> (56 - 8 * byte);
  return 9;
}

/* {"device": …, "boot": …, "id": …, "data": {"temperature": …}} */
static size_t event(uint8_t *out, const char *device, uint32_t boot, uint32_t id, float temperature) {
  size_t used = head(out, 5, 4);
  used += text(out + used, "device"); used += text(out + used, device);
  used += text(out + used, "boot");   used += head(out + used, 0, boot);
  used += text(out + used, "id");     used += head(out + used, 0, id);
  used += text(out + used, "data");   used += head(out + used, 5, 1);
  used += text(out + used, "temperature"); used += real(out + used, temperature);
  return used;
}

/* CON POST /e, Content-Format 60 (CBOR). One Message ID and one token for all transmissions of a request. */
static size_t request(uint8_t *out, uint16_t message_id, uint32_t token, const uint8_t *body, size_t length) {
  const uint8_t options[] = {0xb1, 'e', 0x11, 60, 0xff};
  out[0] = 0x40 | TOKEN_BYTES; out[1] = 0x02; out[2] = message_id >> 8; out[3] = message_id & 0xff;
  memcpy(out + 4, &token, TOKEN_BYTES);
  memcpy(out + 4 + TOKEN_BYTES, options, sizeof options);
  memcpy(out + 4 + TOKEN_BYTES + sizeof options, body, length);
  return 4 + TOKEN_BYTES + sizeof options + length;
}

/* Wait for the answer to the request; return its code, 0 if none arrives in time. */
static int answer(int gateway, const uint8_t *sent, int wait_ms) {
  uint8_t heard[BYTES_MAX];
  struct pollfd readable = {.fd = gateway, .events = POLLIN};
  while (poll(&readable, 1, wait_ms) > 0) {
    ssize_t length = recv(gateway, heard, sizeof heard, 0);
    if (length < 4) continue;
    int type = heard[0] >> 4 & 3, code = heard[1];
    if (type == 2 && code == 0 && !memcmp(heard + 2, sent + 2, 2)) { wait_ms = SEPARATE_MS; continue; }
    if (length < 4 + TOKEN_BYTES || (heard[0] & 15) != TOKEN_BYTES || memcmp(heard + 4, sent + 4, TOKEN_BYTES)) continue;
    if (type == 0) { /* a separate response, which requires an ACK */
      const uint8_t ack[] = {0x60, 0, heard[2], heard[3]};
      send(gateway, ack, sizeof ack, 0);
    }
    return code;
  }
  return 0;
}

int main(int count, char **given) {
  if (count != 7) { fprintf(stderr, "usage: sensor GATEWAY PORT DEVICE BOOT ID TEMPERATURE\n"); return 2; }
  struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found;
  if (getaddrinfo(given[1], given[2], &hints, &found)) return 2;
  int gateway = socket(found->ai_family, SOCK_DGRAM, 0);
  if (gateway < 0 || connect(gateway, found->ai_addr, found->ai_addrlen)) return 1;

  uint8_t body[BYTES_MAX], datagram[BYTES_MAX];
  if (strlen(given[3]) > 128) return 2;
  size_t length = event(body, given[3], strtoul(given[4], 0, 10), strtoul(given[5], 0, 10), strtof(given[6], 0));
  srand(time(0) ^ getpid()); /* on a microcontroller: its random number generator */
  length = request(datagram, rand(), rand(), body, length);

  int wait_ms = ACK_TIMEOUT_MS + rand() % (ACK_TIMEOUT_MS / 2), code = 0;
  for (int turn = 0; turn <= MAX_RETRANSMIT && !code; turn++, wait_ms *= 2) {
    send(gateway, datagram, length, 0); /* the same bytes each time: the gateway recognises them */
    code = answer(gateway, datagram, wait_ms);
  }
  printf("%d.%02d\n", code >> 5, code & 31);
  freeaddrinfo(found);
  close(gateway);
  if (code >> 5 == 2) return 0; /* on disk: delete the event */
  if (code == 0 || code >> 5 == 5) return 1; /* no answer, or the store is full: send it again later */
  if (code == 0x81 || code == 0x83) return 1; /* 4.01, 4.03: not allowed; the gateway's operator can change that */
  if (code == 0x9D) return 1;                 /* 4.29: more than this sensor's share; later */
  return 2; /* other 4.xx: these bytes are never accepted */
}
