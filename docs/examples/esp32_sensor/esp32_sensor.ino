// A sensor on an ESP32 (Arduino core): it measures, sends its events to the gateway over CoAP, and sleeps.
//
// Deep sleep keeps only the memory that RTC_DATA_ATTR marks: the queue and the counters. A power cut clears it; then the
// boot count in the flash (Preferences) distinguishes the ids of the new start, which begin at 1 again, from earlier
// ones, and events that were waiting are lost. Keep the queue in Preferences, too, if that matters more than the flash.
#include <Preferences.h>
#include <WiFi.h>
#include <WiFiUdp.h>
#include <esp_sleep.h>

#ifndef GATEWAY
#define GATEWAY "192.168.1.10"
#define PORT 5683
#define DEVICE "urn:dev:mac:00158d0001a2b3c4"
#define WIFI_NAME "name"
#define WIFI_PASSWORD "password"
#define ACK_TIMEOUT_MS 2000
#define SLEEP_SECONDS 60
#endif

const int QUEUE_MAX = 64, PACK_MAX = 8, MAX_RETRANSMIT = 4, BODY_BYTES_MAX = 1024, HEAD_BYTES = 13;
const uint32_t WIFI_MS_MAX = 10000, SEPARATE_MS = 60000;

struct Event { uint32_t boot, id; float temperature; };

RTC_DATA_ATTR uint32_t boot;  // 0 after a power cut
RTC_DATA_ATTR uint32_t id;
RTC_DATA_ATTR uint32_t queued;
RTC_DATA_ATTR Event queue[QUEUE_MAX];

WiFiUDP udp;

void count_boot() {
  if (boot != 0) return;  // woken from deep sleep
  Preferences flash;
  flash.begin("oncegate", false);
  boot = flash.getUInt("boot", 0) + 1;
  flash.putUInt("boot", boot);
  flash.end();
}

void measure() {
  if (queued == QUEUE_MAX) return;  // measure again when there is room
  queue[queued++] = {boot, ++id, temperatureRead()};
  Serial.printf("measured %u %u\n", (unsigned)boot, (unsigned)id);
}

// [{"device":…,"boot":…,"id":…,"data":{"temperature":…}},…] from the oldest events; the same events give the same bytes.
int pack(char *body, int count) {
  int length = 0;
  for (int place = 0; place < count; place++)
    length += snprintf(body + length, BODY_BYTES_MAX - length,
                       "%c{\"device\":\"%s\",\"boot\":%u,\"id\":%u,\"data\":{\"temperature\":%.2f}}", place ? ',' : '[',
                       DEVICE, (unsigned)queue[place].boot, (unsigned)queue[place].id, queue[place].temperature);
  body[length++] = ']';
  return length;
}

// Wait for the answer to a request; return its code, 0 if none arrives in time.
int answer(const uint8_t *sent, uint32_t wait_ms) {
  uint8_t heard[128];
  for (uint32_t begin = millis(); millis() - begin < wait_ms; delay(1)) {
    if (udp.parsePacket() <= 0) continue;
    int length = udp.read(heard, sizeof heard);
    if (length < 4) continue;
    int type = heard[0] >> 4 & 3;
    if (type == 2 && heard[1] == 0 && !memcmp(heard + 2, sent + 2, 2)) {  // the answer follows separately
      begin = millis();
      wait_ms = SEPARATE_MS;
    } else if (length >= 8 && (heard[0] & 15) == 4 && !memcmp(heard + 4, sent + 4, 4)) {
      if (type == 0) {
        const uint8_t ack[] = {0x60, 0, heard[2], heard[3]};
        udp.beginPacket(GATEWAY, PORT);
        udp.write(ack, sizeof ack);
        udp.endPacket();
      }
      return heard[1];
    }
  }
  return 0;
}

// Send a confirmable POST to /e (JSON), retransmitted as in RFC 7252; return the code of the answer, 0 without one.
int request(const char *body, int length) {
  static uint8_t sent[HEAD_BYTES + BODY_BYTES_MAX];
  const uint32_t message_id = esp_random(), token = esp_random();
  const uint8_t head[] = {0x44, 0x02, (uint8_t)(message_id >> 8), (uint8_t)message_id, (uint8_t)(token >> 24),
                          (uint8_t)(token >> 16), (uint8_t)(token >> 8), (uint8_t)token, 0xb1, 'e', 0x11, 50, 0xff};
  memcpy(sent, head, HEAD_BYTES);
  memcpy(sent + HEAD_BYTES, body, length);
  uint32_t wait_ms = ACK_TIMEOUT_MS + esp_random() % (ACK_TIMEOUT_MS / 2);
  for (int turn = 0; turn <= MAX_RETRANSMIT; turn++, wait_ms *= 2) {
    udp.beginPacket(GATEWAY, PORT);
    udp.write(sent, HEAD_BYTES + length);  // the same bytes each time: the gateway recognises them
    udp.endPacket();
    if (int code = answer(sent, wait_ms)) return code;
  }
  return 0;
}

void send_queue() {
  static char body[BODY_BYTES_MAX];
  while (queued) {
    const int count = queued < PACK_MAX ? queued : PACK_MAX;
    const int code = request(body, pack(body, count)), kind = code >> 5;
    if (kind != 2 && (kind != 4 || code == 0x81 || code == 0x83 || code == 0x9D))
      return;  // no answer, 5.xx, 4.01, 4.03, 4.29: again later
    Serial.printf("%s %d\n", kind == 2 ? "stored" : "refused", count);     // other 4.xx: never accepted
    queued -= count;
    memmove(queue, queue + count, queued * sizeof(Event));
  }
}

void setup() {
  Serial.begin(115200);
  count_boot();
  measure();
  WiFi.begin(WIFI_NAME, WIFI_PASSWORD);
  for (uint32_t begin = millis(); WiFi.status() != WL_CONNECTED && millis() - begin < WIFI_MS_MAX;) delay(50);
  if (WiFi.status() == WL_CONNECTED && udp.begin(0)) send_queue();
  Serial.printf("waiting %u\n", (unsigned)queued);
  esp_sleep_enable_timer_wakeup(SLEEP_SECONDS * 1000000ULL);
  esp_deep_sleep_start();  // the next start begins at setup()
}

void loop() {}
