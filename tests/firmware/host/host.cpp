// A board without radio: time, flash, RTC memory and datagrams by POSIX. A process that is killed is a power cut.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "Arduino.h"
#include "Preferences.h"
#include "WiFiUdp.h"
#include "esp_sleep.h"

static const char *const RTC_FILE = "rtc";
extern char __start_rtc_data[], __stop_rtc_data[];  // by the linker, for the section of this name

static bool replace(const std::string &path, const void *bytes, size_t length) {
  const std::string fresh = path + ".new";
  FILE *file = fopen(fresh.c_str(), "wb");
  return file && fwrite(bytes, 1, length, file) == length && fclose(file) == 0 && !rename(fresh.c_str(), path.c_str());
}

static bool load(const std::string &path, void *bytes, size_t length) {
  FILE *file = fopen(path.c_str(), "rb");
  if (!file) return false;
  const bool whole = fread(bytes, 1, length, file) == length;
  fclose(file);
  return whole;
}

uint32_t millis() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint32_t>(now.tv_sec * 1000 + now.tv_nsec / 1000000);
}

void delay(uint32_t milliseconds) { usleep(milliseconds * 1000); }

uint32_t esp_random() {
  uint32_t value;
  return getrandom(&value, sizeof value, 0) == sizeof value ? value : millis();
}

float temperatureRead() { return 20 + static_cast<float>(esp_random() % 64) / 10; }

bool Preferences::begin(const char *space, bool) {
  space_ = space;
  return true;
}

uint32_t Preferences::getUInt(const char *key, uint32_t otherwise) {
  uint32_t value;
  return load(std::string(space_) + "." + key, &value, sizeof value) ? value : otherwise;
}

size_t Preferences::putUInt(const char *key, uint32_t value) {
  return replace(std::string(space_) + "." + key, &value, sizeof value) ? sizeof value : 0;
}

uint8_t WiFiUDP::begin(uint16_t) {
  socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
  return socket_ >= 0;
}

int WiFiUDP::beginPacket(const char *host, uint16_t port) {
  host_ = inet_addr(host);
  port_ = htons(port);
  sending_length_ = 0;
  return 1;
}

size_t WiFiUDP::write(const uint8_t *bytes, size_t length) {
  memcpy(sending_ + sending_length_, bytes, length);
  sending_length_ += length;
  return length;
}

int WiFiUDP::endPacket() {
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  peer.sin_addr.s_addr = host_;
  peer.sin_port = port_;
  const auto *address = reinterpret_cast<const sockaddr *>(&peer);
  return sendto(socket_, sending_, sending_length_, 0, address, sizeof peer) >= 0;
}

int WiFiUDP::parsePacket() {
  const ssize_t length = recv(socket_, received_, sizeof received_, 0);
  received_length_ = length > 0 ? length : 0;
  return static_cast<int>(received_length_);
}

int WiFiUDP::read(uint8_t *bytes, size_t length_max) {
  const size_t length = received_length_ < length_max ? received_length_ : length_max;
  memcpy(bytes, received_, length);
  return static_cast<int>(length);
}

void esp_sleep_enable_timer_wakeup(uint64_t) {}

void esp_deep_sleep_start() {
  replace(RTC_FILE, __start_rtc_data, __stop_rtc_data - __start_rtc_data);
  exit(0);
}

int main() {
  load(RTC_FILE, __start_rtc_data, __stop_rtc_data - __start_rtc_data);
  unlink(RTC_FILE);
  setup();
  for (;;) loop();
}
