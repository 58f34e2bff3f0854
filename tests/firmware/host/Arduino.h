// The part of the ESP32's Arduino core that the sketch uses, on POSIX: a process is one waking of the board.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define RTC_DATA_ATTR __attribute__((section("rtc_data")))  // kept over a deep sleep in a file

uint32_t millis();
void delay(uint32_t milliseconds);
uint32_t esp_random();
float temperatureRead();

struct SerialPort {
  void begin(unsigned long) { setvbuf(stdout, nullptr, _IOLBF, 0); }
  template <typename... Given> void printf(const char *format, Given... given) { std::printf(format, given...); }
};
inline SerialPort Serial;

void setup();
void loop();
