/* LD_PRELOAD this, and the wall clock, it alone, is off by CLOCK_OFFSET_SECONDS: what threads wait for is left as it is.
   The kernel is asked directly: libc's own functions call one another under names that nothing can come between. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t offset(void) {
    const char *text = getenv("CLOCK_OFFSET_SECONDS");
    return text ? (time_t)atoll(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int outcome = (int)syscall(SYS_clock_gettime, clock, now);
    if (outcome == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
    return outcome;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec moment;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &moment);
    now->tv_sec = moment.tv_sec;
    now->tv_usec = moment.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    if (result) *result = moment.tv_sec;
    return moment.tv_sec;
}
