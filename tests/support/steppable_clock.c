/* LD_PRELOAD: offsets the wall clock by the int64 at the start of the file $CLOCK_FILE, which may change at any time.
   The next int64 is what the kernel reports: 0 as it is, 1 not synchronised, 2 synchronised.
   Timed waits of condition variables on the wall clock end by the stepped clock, as with the kernel's own clock. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define SLICE_NS 20000000LL /* how soon a wait notices a step */
#define MONOTONIC_BELOW 100000000 /* seconds: a deadline below it is no moment of the wall clock */

static volatile int64_t none[2];
static volatile int64_t *shift;

static volatile int64_t *state(void) {
    if (!shift) {
        const char *name = getenv("CLOCK_FILE");
        int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
        void *page = file < 0 ? MAP_FAILED : mmap(0, 16, PROT_READ, MAP_SHARED, file, 0);
        if (file >= 0) close(file);
        shift = page == MAP_FAILED ? none : page;
    }
    return shift;
}

static int64_t offset(void) { return state()[0]; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec moment;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &moment);
    now->tv_sec = moment.tv_sec;
    now->tv_usec = moment.tv_nsec / 1000;
    return 0;
}

int adjtimex(struct timex *settings) {
    int64_t reported = state()[1];
    if (reported) return reported == 1 ? TIME_ERROR : TIME_OK;
    return (int)syscall(SYS_adjtimex, settings);
}

time_t time(time_t *result) {
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    if (result) *result = moment.tv_sec;
    return moment.tv_sec;
}

static int wait_on_the_wall_clock(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    for (;;) {
        struct timespec now, slice;
        clock_gettime(CLOCK_REALTIME, &now);
        int64_t left = (until->tv_sec - now.tv_sec) * 1000000000LL + until->tv_nsec - now.tv_nsec;
        if (left <= 0) return ETIMEDOUT;
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &slice);
        slice.tv_nsec += left < SLICE_NS ? left : SLICE_NS;
        if (slice.tv_nsec >= 1000000000) {
            slice.tv_sec++;
            slice.tv_nsec -= 1000000000;
        }
        int result = pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &slice);
        if (result != ETIMEDOUT) return result;
    }
}

/* Python's waits are on the monotonic clock. */
int pthread_cond_timedwait(
    pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    if (until->tv_sec < MONOTONIC_BELOW) return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, until);
    return wait_on_the_wall_clock(condition, mutex, until);
}

/* The one by which librdkafka waits, always on the wall clock. In glibc the types are the same. */
int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until) {
    int result = wait_on_the_wall_clock((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until);
    return result == 0 ? thrd_success : result == ETIMEDOUT ? thrd_timedout : thrd_error;
}
