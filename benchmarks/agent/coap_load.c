/* CoAP sensors, each with a socket of its own and one outstanding request, as RFC 7252 section 4.7 requires.
 *
 * usage: coap_load PORT SENSORS SECONDS RATE CODE PATH FIRST FORGET
 *
* RATE 0: each sensor sends its next event as soon as the last is answered. RATE > 0: the total number of requests per
 * second, each at a scheduled time from which its latency counts, also where no sensor was free. CODE is the request's code
 * (2 POST, 3 PUT), FIRST the first event's id. FORGET 1: wait for no answer (a flood). Prints one JSON object.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SENSORS_MAX = 4096, DATAGRAM_MAX = 512, EVENTS = 256, LATENCIES_MAX = 20000000 };
static const double RESEND_SECONDS = 2.0, PATIENCE_SECONDS = 20.0;

struct sensor {
    int socket, busy, length;
    uint16_t mid;
    double begun, sent;
    unsigned char datagram[DATAGRAM_MAX];
};

static struct sensor sensors[SENSORS_MAX];
static int idle[SENSORS_MAX], idle_count;
static uint32_t *latencies;
static long answered, accepted, refused, resent, sent_count;
static unsigned long long next_id;
static int code;
static const char *path;

static double now(void) {
    struct timespec moment;
    clock_gettime(CLOCK_MONOTONIC, &moment);
    return (double)moment.tv_sec + (double)moment.tv_nsec * 1e-9;
}

static void write_request(struct sensor *sensor, int number) {
    unsigned char *at = sensor->datagram;
    size_t path_length = strlen(path);
    sensor->mid++;
    *at++ = 0x40; /* CON, no token */
    *at++ = (unsigned char)code;
    *at++ = (unsigned char)(sensor->mid >> 8);
    *at++ = (unsigned char)sensor->mid;
    if (path_length < 13) {
        *at++ = (unsigned char)(0xB0 | path_length);
    } else {
        *at++ = 0xBD;
        *at++ = (unsigned char)(path_length - 13);
    }
    memcpy(at, path, path_length);
    at += path_length;
    *at++ = 0x11; /* Content-Format */
    *at++ = 50;
    *at++ = 0xFF;
    at += sprintf((char *)at,
                  "{\"device\":\"urn:dev:mac:00158d%010x\",\"id\":%llu,\"data\":{\"temperature\":%llu.5,\"humidity\":%llu}}",
                  number, next_id, next_id % 30, next_id % 100);
    next_id++;
    sensor->length = (int)(at - sensor->datagram);
}

static void send_next(int number, double begun) {
    struct sensor *sensor = &sensors[number];
    write_request(sensor, number);
    sensor->busy = 1;
    sensor->begun = begun;
    sensor->sent = now();
    sent_count++;
    if (send(sensor->socket, sensor->datagram, (size_t)sensor->length, 0) < 0 && errno != EAGAIN && errno != ECONNREFUSED)
        perror("send");
}

static int take(struct sensor *sensor) {
    unsigned char answer[DATAGRAM_MAX];
    ssize_t length = recv(sensor->socket, answer, sizeof answer, MSG_DONTWAIT);
    if (length < 4 || !sensor->busy || (answer[0] & 0x30) != 0x20) return 0;
    if (answer[2] != (unsigned char)(sensor->mid >> 8) || answer[3] != (unsigned char)sensor->mid) return 0;
    if (answered < LATENCIES_MAX) latencies[answered] = (uint32_t)((now() - sensor->begun) * 1e6);
    answered++;
    if (answer[1] >> 5 == 2) accepted++; else refused++;
    sensor->busy = 0;
    return 1;
}

static int by_size(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

static double quantile(double share) {
    if (answered == 0) return 0.0;
    return latencies[(long)((double)(answered - 1) * share)] / 1e3;
}

int main(int count, char **words) {
    if (count != 9) {
        fprintf(stderr, "usage: coap_load PORT SENSORS SECONDS RATE CODE PATH FIRST FORGET\n");
        return 2;
    }
    int sensor_count = atoi(words[2]), forget = atoi(words[8]);
    double seconds = atof(words[3]), rate = atof(words[4]);
    struct sockaddr_in6 target = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)atoi(words[1]))};
    target.sin6_addr = in6addr_loopback;
    code = atoi(words[5]);
    path = words[6];
    next_id = strtoull(words[7], NULL, 10);
    if (sensor_count < 1 || sensor_count > SENSORS_MAX || strlen(path) > 200) return 2;
    struct rlimit files = {SENSORS_MAX + 64, SENSORS_MAX + 64};
    setrlimit(RLIMIT_NOFILE, &files);
    latencies = malloc(sizeof *latencies * LATENCIES_MAX);
    int poll = epoll_create1(0);
    for (int number = 0; number < sensor_count; number++) {
        struct sensor *sensor = &sensors[number];
        sensor->socket = socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        if (sensor->socket < 0 || connect(sensor->socket, (struct sockaddr *)&target, sizeof target) < 0) {
            perror("connect");
            return 1;
        }
        sensor->mid = (uint16_t)(next_id * 31 + (unsigned)number);
        struct epoll_event interest = {.events = EPOLLIN, .data.u32 = (uint32_t)number};
        epoll_ctl(poll, EPOLL_CTL_ADD, sensor->socket, &interest);
        idle[idle_count++] = number;
    }
    double start = now(), end = start + seconds, due = start, scanned = start, last = start;
    long scheduled = 0;
    while (1) {
        double moment = now();
        int sending = moment < end;
        if (!sending && (idle_count == sensor_count || forget || moment > end + PATIENCE_SECONDS)) break;
        while (sending && idle_count > 0 && (rate == 0 || due <= moment)) {
            int number = idle[--idle_count];
            send_next(number, rate == 0 ? now() : due);
            if (forget) {
                memmove(idle + 1, idle, sizeof *idle * (size_t)idle_count);
                idle[0] = number;
                idle_count++;
            }
            if (rate > 0) due = start + (double)++scheduled / rate;
        }
        struct epoll_event events[EVENTS];
        int found = epoll_wait(poll, events, EVENTS, rate > 0 && sending ? (due - moment > 2e-3 ? 1 : 0) : 20);
        for (int at = 0; at < found; at++) {
            int number = (int)events[at].data.u32;
            if (take(&sensors[number])) {
                last = now();
                if (!forget) idle[idle_count++] = number;
            }
        }
        if (!forget && now() - scanned > 0.1) {
            scanned = now();
            for (int number = 0; number < sensor_count; number++) {
                struct sensor *sensor = &sensors[number];
                if (sensor->busy && scanned - sensor->sent > RESEND_SECONDS) {
                    sensor->sent = scanned;
                    resent++;
                    if (send(sensor->socket, sensor->datagram, (size_t)sensor->length, 0) < 0) continue;
                }
            }
        }
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec * 1e-6 + (double)usage.ru_stime.tv_sec +
                 (double)usage.ru_stime.tv_usec * 1e-6;
    long kept = answered < LATENCIES_MAX ? answered : LATENCIES_MAX;
    qsort(latencies, (size_t)kept, sizeof *latencies, by_size);
    printf("{\"sent\": %ld, \"accepted\": %ld, \"refused\": %ld, \"resent\": %ld, \"seconds\": %.3f, \"p50_ms\": %.3f, "
           "\"p99_ms\": %.3f, \"max_ms\": %.3f, \"cpu_seconds\": %.3f}\n",
           sent_count, accepted, refused, resent, (last > start ? last : end) - start, quantile(0.5), quantile(0.99),
           quantile(1.0), cpu);
    return 0;
}
