/* Clients of one server, each with a socket of its own and one outstanding request.
 *
 * usage: load PROTOCOL PORT CLIENTS SECONDS RATE CODE PATH FIRST FORGET PACK
 *
 * PROTOCOL is coap (confirmable requests, as RFC 7252 section 4.7 requires), coap-tagged (the same with another
 * Request-Tag in each, as libcoap sends from version 4.3.2), nats (messages to the subject PATH, each acknowledged by
 * JetStream) or http (POST to PATH over connections that stay open). RATE 0: each client sends its next request as soon as the last is answered. RATE > 0: the total number of requests per second, each at a scheduled time
 * from which its latency counts, also where no client was free. CODE is the code of a CoAP request (2 POST, 3 PUT), FIRST
 * the first event's id. FORGET 1: wait for no answer (a flood, CoAP only). PACK: events in a request, more than one for
 * HTTP, and for NATS, where they are an atomic batch (its ADR 50). Prints one JSON object.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_MAX = 4096, EVENT_MAX = 160, PACK_MAX = 1000, HEAD_MAX = 512, ANSWER_MAX = 1 << 17 };
enum { EVENTS = 256, LATENCIES_MAX = 20000000 };
static const double RESEND_SECONDS = 2.0, PATIENCE_SECONDS = 20.0;
enum protocol { COAP, NATS, HTTP };

struct client {
    int socket, busy, length, filled;
    uint16_t mid;
    double begun, sent;
    char *request, *answer;
};

static struct client clients[CLIENTS_MAX];
static int idle[CLIENTS_MAX], idle_count;
static uint32_t *latencies;
static long answered, accepted, refused, resent, sent_count;
static unsigned long long next_id;
static enum protocol protocol;
static int code, pack, tagged;
static const char *path;

static double now(void) {
    struct timespec moment;
    clock_gettime(CLOCK_MONOTONIC, &moment);
    return (double)moment.tv_sec + (double)moment.tv_nsec * 1e-9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int write_event(char *at, int number) {
    unsigned long long id = next_id++;
    return sprintf(at, "{\"device\":\"urn:dev:mac:00158d%010x\",\"id\":%llu,\"data\":{\"temperature\":%llu.5,\"humidity\":%llu}}",
                   number, id, id % 30, id % 100);
}

static int write_coap(struct client *client, int number) {
    unsigned char *at = (unsigned char *)client->request;
    size_t path_length = strlen(path);
    client->mid++;
    *at++ = 0x40; /* CON, no token */
    *at++ = (unsigned char)code;
    *at++ = (unsigned char)(client->mid >> 8);
    *at++ = (unsigned char)client->mid;
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
    if (tagged) {
        memcpy(at, "\xE4\x00\x0B", 3); /* 292 after 12, 4 bytes */
        memcpy(at + 3, &next_id, 4);
        at += 7;
    }
    *at++ = 0xFF;
    at += write_event((char *)at, number);
    return (int)(at - (unsigned char *)client->request);
}

static int write_nats(struct client *client, int number) {
    char event[EVENT_MAX];
    int length = write_event(event, number);
    return sprintf(client->request, "PUB %s i.%d %d\r\n%s\r\n", path, number, length, event);
}

/* Only the last message of a batch, which commits it, asks for an answer. */
static int write_nats_batch(struct client *client, int number) {
    char event[EVENT_MAX], head[HEAD_MAX], reply[16] = "", *at = client->request;
    const char *commit = "";
    unsigned long long batch = next_id;
    for (int place = 1; place <= pack; place++) {
        if (place == pack) {
            sprintf(reply, "i.%d ", number);
            commit = "Nats-Batch-Commit:1\r\n";
        }
        int length = write_event(event, number * pack + place - 1);
        int head_length =
            sprintf(head, "NATS/1.0\r\nNats-Batch-Id:%llu\r\nNats-Batch-Sequence:%d\r\n%s\r\n", batch, place, commit);
        at += sprintf(at, "HPUB %s %s%d %d\r\n%s%s\r\n", path, reply, head_length, head_length + length, head, event);
    }
    return (int)(at - client->request);
}

static int write_http(struct client *client, int number) {
    static char body[PACK_MAX * EVENT_MAX];
    char *at = body;
    if (pack > 1) *at++ = '[';
    for (int place = 0; place < pack; place++) {
        if (place) *at++ = ',';
        at += write_event(at, number * pack + place);
    }
    if (pack > 1) *at++ = ']';
    *at = 0;
    return sprintf(client->request,
                   "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                   path, (int)(at - body), body);
}

static void send_all(int socket, const char *bytes, int length) {
    for (int done = 0; done < length;) {
        ssize_t count = send(socket, bytes + done, (size_t)(length - done), MSG_NOSIGNAL);
        if (count > 0) done += (int)count;
        else if (errno == EAGAIN) usleep(100);
        else fail("send");
    }
}

static void send_next(int number, double begun) {
    struct client *client = &clients[number];
    client->length = protocol == COAP   ? write_coap(client, number)
                     : protocol == HTTP ? write_http(client, number)
                     : pack == 1        ? write_nats(client, number)
                                        : write_nats_batch(client, number);
    client->busy = 1;
    client->begun = begun;
    client->sent = now();
    if (protocol != COAP)
        send_all(client->socket, client->request, client->length);
    else if (send(client->socket, client->request, (size_t)client->length, 0) < 0) {
        if (errno != EAGAIN && errno != ECONNREFUSED) perror("send");
        return;
    }
    sent_count++;
}

static int is_success_coap(const unsigned char *answer, ssize_t length, const struct client *client) {
    if (length < 4 || (answer[0] & 0x30) != 0x20) return -1;
    if (answer[2] != (unsigned char)(client->mid >> 8) || answer[3] != (unsigned char)client->mid) return -1;
    return answer[1] >> 5 == 2;
}

/* Of each protocol: -1 where the answer is not whole yet, 1 a success, 0 a refusal. */
static int is_success_nats(struct client *client) {
    char *message = strstr(client->answer, "MSG ");
    if (strncmp(client->answer, "PING", 4) == 0 && client->answer[client->filled - 1] == '\n') {
        send_all(client->socket, "PONG\r\n", 6);
        if (!message) client->filled = 0;
    }
    char *end = message ? strstr(message, "\r\n") : NULL;
    if (!end || !strstr(end + 2, "\r\n")) return -1;
    return strstr(end, "\"seq\":") && !strstr(end, "\"error\":");
}

static int is_success_http(struct client *client) {
    char *end = strstr(client->answer, "\r\n\r\n");
    if (!end) return -1;
    char *length = strcasestr(client->answer, "content-length:");
    if (!length || length > end) {
        fprintf(stderr, "load: an answer without Content-Length\n");
        exit(1);
    }
    if (client->answer + client->filled < end + 4 + atoi(length + 15)) return -1;
    return strncmp(client->answer + 9, "200", 3) == 0;
}

static int read_answer(struct client *client) {
    ssize_t length = recv(client->socket, client->answer + client->filled, (size_t)(ANSWER_MAX - client->filled), MSG_DONTWAIT);
    if (protocol == COAP) return is_success_coap((unsigned char *)client->answer, length, client);
    if (length == 0) {
        fprintf(stderr, "load: the server has closed a connection\n");
        exit(1);
    }
    if (length < 0) return -1;
    client->filled += (int)length;
    client->answer[client->filled] = 0;
    int success = protocol == NATS ? is_success_nats(client) : is_success_http(client);
    if (success >= 0) client->filled = 0;
    return success;
}

static int take(struct client *client) {
    int success = read_answer(client);
    if (success < 0 || !client->busy) return 0;
    if (answered < LATENCIES_MAX) latencies[answered] = (uint32_t)((now() - client->begun) * 1e6);
    answered++;
    if (success) accepted += pack;
    else refused++;
    client->busy = 0;
    return 1;
}

static void subscribe(struct client *client, int number) {
    char words[HEAD_MAX];
    int length = sprintf(words, "CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB i.%d 1\r\nPING\r\n", number);
    send_all(client->socket, words, length);
    while (!strstr(client->answer, "PONG\r\n")) {
        ssize_t count = recv(client->socket, client->answer + client->filled, (size_t)(ANSWER_MAX - client->filled), 0);
        if (count <= 0) fail("recv");
        client->filled += (int)count;
        client->answer[client->filled] = 0;
    }
    client->filled = 0;
}

static void open_client(int number, int port) {
    struct client *client = &clients[number];
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_loopback};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct sockaddr *target = protocol == COAP ? (struct sockaddr *)&six : (struct sockaddr *)&four;
    client->request = malloc((size_t)pack * (HEAD_MAX + EVENT_MAX));
    client->answer = calloc(1, ANSWER_MAX + 1);
    client->socket = socket(protocol == COAP ? AF_INET6 : AF_INET, protocol == COAP ? SOCK_DGRAM : SOCK_STREAM, 0);
    if (client->socket < 0 || connect(client->socket, target, protocol == COAP ? sizeof six : sizeof four) < 0) fail("connect");
    int on = 1;
    if (protocol != COAP) setsockopt(client->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (protocol == NATS) subscribe(client, number);
    fcntl(client->socket, F_SETFL, O_NONBLOCK);
    client->mid = (uint16_t)(next_id * 31 + (unsigned)number);
}

static int by_size(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

static double quantile(long kept, double share) {
    return kept == 0 ? 0.0 : latencies[(long)((double)(kept - 1) * share)] / 1e3;
}

int main(int count, char **words) {
    if (count != 11) {
        fprintf(stderr, "usage: load PROTOCOL PORT CLIENTS SECONDS RATE CODE PATH FIRST FORGET PACK\n");
        return 2;
    }
    tagged = strcmp(words[1], "coap-tagged") == 0;
    protocol = tagged || strcmp(words[1], "coap") == 0 ? COAP : strcmp(words[1], "nats") == 0 ? NATS : HTTP;
    int client_count = atoi(words[3]), forget = atoi(words[9]);
    double seconds = atof(words[4]), rate = atof(words[5]);
    code = atoi(words[6]);
    path = words[7];
    next_id = strtoull(words[8], NULL, 10);
    pack = atoi(words[10]);
    if (client_count < 1 || client_count > CLIENTS_MAX || strlen(path) > 200 || pack < 1 || pack > PACK_MAX) return 2;
    if ((pack > 1 && protocol == COAP) || (forget && protocol != COAP)) return 2;
    struct rlimit files = {CLIENTS_MAX + 64, CLIENTS_MAX + 64};
    setrlimit(RLIMIT_NOFILE, &files);
    latencies = malloc(sizeof *latencies * LATENCIES_MAX);
    int poll = epoll_create1(0);
    for (int number = 0; number < client_count; number++) {
        open_client(number, atoi(words[2]));
        struct epoll_event interest = {.events = EPOLLIN, .data.u32 = (uint32_t)number};
        epoll_ctl(poll, EPOLL_CTL_ADD, clients[number].socket, &interest);
        idle[idle_count++] = number;
    }
    double start = now(), end = start + seconds, due = start, scanned = start, last = start;
    long scheduled = 0;
    while (1) {
        double moment = now();
        int sending = moment < end;
        if (!sending && (idle_count == client_count || forget || moment > end + PATIENCE_SECONDS)) break;
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
            if (take(&clients[number])) {
                last = now();
                if (!forget) idle[idle_count++] = number;
            }
        }
        if (protocol == COAP && !forget && now() - scanned > 0.1) {
            scanned = now();
            for (int number = 0; number < client_count; number++) {
                struct client *client = &clients[number];
                if (client->busy && scanned - client->sent > RESEND_SECONDS) {
                    client->sent = scanned;
                    resent++;
                    if (send(client->socket, client->request, (size_t)client->length, 0) < 0) continue;
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
           sent_count, accepted, refused, resent, (last > start ? last : end) - start, quantile(kept, 0.5),
           quantile(kept, 0.99), quantile(kept, 1.0), cpu);
    return 0;
}
