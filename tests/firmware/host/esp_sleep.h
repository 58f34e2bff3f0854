#pragma once
#include <cstdint>

void esp_sleep_enable_timer_wakeup(uint64_t microseconds);
[[noreturn]] void esp_deep_sleep_start();  // saves the RTC memory and ends the process
