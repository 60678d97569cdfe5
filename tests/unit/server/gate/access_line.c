/* Lines are what readers of logs parse: their bytes are fixed here, and a twin made of printf and
 * strftime agrees with each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "common/base/dice.h"
#include "server/gate/access_line.h"

enum { WHEN_MS = 7 }; /* of WHEN: 2026-11-24 00:20:35 */
static const uint64_t WHEN = UINT64_C(1795479635) * 1000 + WHEN_MS;

static struct sockaddr_storage v4(const char *text)
{
    struct sockaddr_storage peer = {.ss_family = AF_INET};

    assert_int_equal(inet_pton(AF_INET, text, &((struct sockaddr_in *)&peer)->sin_addr), 1);
    return peer;
}

static struct sockaddr_storage v6(const char *text)
{
    struct sockaddr_storage peer = {.ss_family = AF_INET6};

    assert_int_equal(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&peer)->sin6_addr), 1);
    return peer;
}

static void expect(bool json, const struct access_entry *en, const char *want)
{
    char room[ACCESS_LINE_BYTES];
    struct access_second second = {0};
    struct slice line = access_line(room, &second, json, en, WHEN);

    assert_int_equal(line.n, strlen(want));
    assert_memory_equal(line.p, want, line.n);
}

static void a_hit(void **state)
{
    struct sockaddr_storage peer = v4("192.0.2.10");
    struct http_field fields[] = {{SLICE("user-agent"), SLICE("pip/24.0 {\"ci\":null}")},
                                  {SLICE("referer"), SLICE("https://a/b")},
                                  {SLICE("range"), SLICE("bytes=0-9")}};
    struct http_req r = {.method_text = SLICE("GET"),
                         .version = HTTP_11,
                         .tls = true,
                         .path = SLICE("/hf/me/gpt/resolve/main/a b"),
                         .query = SLICE("sig=secret"),
                         .host = SLICE("m:8080"),
                         .fields = fields,
                         .nfields = ARRAY_LEN(fields),
                         .peer = &peer,
                         .id = "0123456789abcdef"};
    struct principal who = {.name = SLICE("ci")};
    struct access_entry en = {.req = &r,
                              .who = &who,
                              .repo = SLICE("hf"),
                              .cache = "HIT",
                              .status = 206,
                              .bytes = 10,
                              .took_ns = 1500000,
                              .first_ns = 250400,
                              .complete = true};

    (void)state;
    expect(true, &en,
           "{\"ts\":\"2026-11-24T00:20:35.007Z\",\"id\":\"0123456789abcdef\","
           "\"client\":\"192.0.2.10\",\"principal\":\"ci\",\"method\":\"GET\","
           "\"host\":\"m:8080\",\"path\":\"/hf/me/gpt/resolve/main/a b\",\"proto\":\"HTTP/1.1\","
           "\"tls\":true,\"status\":206,\"bytes\":10,\"complete\":true,\"dur_ms\":1.500,"
           "\"ttfb_ms\":0.250,\"cache\":\"HIT\",\"repo\":\"hf\",\"range\":\"bytes=0-9\","
           "\"ua\":\"pip/24.0 {\\\"ci\\\":null}\"}\n");
    expect(false, &en,
           "192.0.2.10 - ci [24/Nov/2026:00:20:35 +0000] "
           "\"GET /hf/me/gpt/resolve/main/a b HTTP/1.1\" 206 10 "
           "\"https://a/b\" \"pip/24.0 {\\\"ci\\\":null}\"\n");
}

/* Nobody, nothing, from nowhere; and cut off. */
static void nothing_known(void **state)
{
    struct sockaddr_storage peer = {.ss_family = AF_UNIX};
    struct http_req r = {.version = HTTP_10, .peer = &peer, .id = "-"};
    struct access_entry en = {.req = &r, .cache = NULL, .status = 0};

    (void)state;
    expect(true, &en,
           "{\"ts\":\"2026-11-24T00:20:35.007Z\",\"id\":\"-\",\"client\":\"-\","
           "\"principal\":\"\",\"method\":\"\",\"host\":\"\",\"path\":\"\","
           "\"proto\":\"HTTP/1.0\",\"tls\":false,\"status\":0,\"bytes\":0,\"complete\":false,"
           "\"dur_ms\":0.000,\"ttfb_ms\":0.000,\"cache\":\"\",\"repo\":\"\",\"range\":\"\","
           "\"ua\":\"\"}\n");
    expect(false, &en, "- - - [24/Nov/2026:00:20:35 +0000] \"  HTTP/1.0\" 0 0 \"-\" \"-\"\n");
}

static void a_session_of_rsync(void **state)
{
    struct sockaddr_storage peer = v6("2001:db8:0:0:1::7");
    struct http_req r = {
        .method_text = SLICE("RSYNC"), .path = SLICE("/debian"), .peer = &peer, .id = "-"};
    struct principal who = {.name = SLICE("")};
    struct access_entry en = {.req = &r,
                              .who = &who,
                              .repo = SLICE("debian"),
                              .cache = "",
                              .protocol = "rsync",
                              .outcome = "sent",
                              .files = 12,
                              .status = 200,
                              .bytes = UINT64_MAX,
                              .took_ns = 999999500,
                              .complete = true};

    (void)state;
    expect(true, &en,
           "{\"ts\":\"2026-11-24T00:20:35.007Z\",\"id\":\"-\",\"client\":\"2001:db8::1:0:0:7\","
           "\"principal\":\"\",\"method\":\"RSYNC\",\"host\":\"\",\"path\":\"/debian\","
           "\"proto\":\"rsync\",\"tls\":false,\"status\":200,\"bytes\":18446744073709551615,"
           "\"complete\":true,\"dur_ms\":1000.000,\"ttfb_ms\":0.000,\"cache\":\"\","
           "\"repo\":\"debian\",\"range\":\"\",\"ua\":\"\",\"outcome\":\"sent\",\"files\":12}\n");
}

static void escapes(void **state)
{
    struct sockaddr_storage peer = v6("::ffff:10.0.0.1");
    struct http_field fields[] = {{SLICE("user-agent"), SLICE("\x1b[31m\"\\\xc3\xa9\x7f~")}};
    struct http_req r = {.method_text = SLICE("GET"),
                         .version = HTTP_2,
                         .path = SLICE("/a\0b/mrd_01234567_secretsecret/mrd/m"),
                         .fields = fields,
                         .nfields = 1,
                         .peer = &peer,
                         .id = "0"};
    struct access_entry en = {.req = &r, .cache = "MISS", .status = 404};

    (void)state;
    expect(true, &en,
           "{\"ts\":\"2026-11-24T00:20:35.007Z\",\"id\":\"0\",\"client\":\"::ffff:10.0.0.1\","
           "\"principal\":\"\",\"method\":\"GET\",\"host\":\"\","
           "\"path\":\"/a\\u0000b/mrd_01234567_.../mrd/m\",\"proto\":\"HTTP/2\",\"tls\":false,"
           "\"status\":404,\"bytes\":0,\"complete\":false,\"dur_ms\":0.000,\"ttfb_ms\":0.000,"
           "\"cache\":\"MISS\",\"repo\":\"\",\"range\":\"\","
           "\"ua\":\"\\u001b[31m\\\"\\\\\\u00c3\\u00a9\\u007f~\"}\n");
    expect(false, &en,
           "::ffff:10.0.0.1 - - [24/Nov/2026:00:20:35 +0000] "
           "\"GET /a\\x00b/mrd_01234567_.../mrd/m HTTP/2\" 404 0 "
           "\"-\" \"\\x1b[31m\\\"\\\\\\xc3\\xa9\\x7f~\"\n");
}

/* --- the twin --- */

static void twin_value(struct buf *out, struct slice s)
{
    size_t start = out->n;

    for (size_t i = 0; i < s.n; i++) {
        uint8_t c = (uint8_t)s.p[i];
        if (out->n - start > 1024 - 8) {
            buf_str(out, "...");
            return;
        }
        if (c < 0x20 || c > 0x7e) {
            buf_addf(out, "\\u%04x", c);
        } else {
            buf_addf(out, c == '"' || c == '\\' ? "\\%c" : "%c", c);
        }
    }
}

static void twin_line(struct buf *out, const struct access_entry *en, uint64_t unix_ms)
{
    const struct http_req *r = en->req;
    char client[INET6_ADDRSTRLEN], when[32];
    time_t s = (time_t)(unix_ms / 1000);
    struct tm tm;
    const void *address = r->peer->ss_family == AF_INET
                              ? (const void *)&((const struct sockaddr_in *)r->peer)->sin_addr
                              : (const void *)&((const struct sockaddr_in6 *)r->peer)->sin6_addr;

    gmtime_r(&s, &tm);
    assert_int_equal(strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm), 19);
    assert_non_null(inet_ntop(r->peer->ss_family, address, client, sizeof client));
    buf_addf(out, "{\"ts\":\"%s.%03uZ\",\"id\":\"%s\",\"client\":\"%s\",\"principal\":\"\"", when,
             (unsigned)(unix_ms % 1000), r->id, client);
    buf_str(out, ",\"method\":\"GET\",\"host\":\"\",\"path\":\"");
    twin_value(out, r->path);
    buf_addf(out,
             "\",\"proto\":\"HTTP/1.1\",\"tls\":false,\"status\":%d,\"bytes\":%" PRIu64
             ",\"complete\":true,\"dur_ms\":%.3f,\"ttfb_ms\":%.3f",
             en->status, en->bytes, (double)en->took_ns / 1e6, (double)en->first_ns / 1e6);
    buf_str(out, ",\"cache\":\"\",\"repo\":\"\",\"range\":\"\",\"ua\":\"\"}\n");
}

static void any_peer(uint64_t *d, struct sockaddr_storage *peer)
{
    uint8_t *at = (void *)&((struct sockaddr_in6 *)peer)->sin6_addr;

    *peer = (struct sockaddr_storage){.ss_family = AF_INET6};
    if (dice_below(d, 2) == 0) {
        peer->ss_family = AF_INET;
        at = (void *)&((struct sockaddr_in *)peer)->sin_addr;
        for (unsigned i = 0; i < 4; i++) {
            at[i] = (uint8_t)dice_below(d, 256);
        }
        return;
    }
    for (unsigned i = 0; i < 16; i += 2) { /* words that are zero, short, all ones */
        unsigned word[] = {
            0, 0, 0, 0xffff, (unsigned)dice_below(d, 256), (unsigned)dice_below(d, 65536)};
        unsigned is = word[dice_below(d, ARRAY_LEN(word))];
        at[i] = (uint8_t)(is >> 8);
        at[i + 1] = (uint8_t)is;
    }
}

static uint64_t any_ns(uint64_t *d)
{
    uint64_t below[] = {2000, UINT64_C(1000000), UINT64_C(1000000000), UINT64_C(100000000000000)};
    uint64_t ns = dice_below(d, below[dice_below(d, ARRAY_LEN(below))]);

    return dice_below(d, 2) == 0 ? ns
                                 : ns / 1000 * 1000 + 500; /* halves are rounded as printf does */
}

static void a_twin_agrees(void **state)
{
    uint64_t d = 1;
    struct buf want = BUF_INIT(ACCESS_LINE_BYTES);
    struct access_second second = {0};
    struct sockaddr_storage peer;
    char room[ACCESS_LINE_BYTES], path[1500];

    (void)state;
    for (unsigned turn = 0; turn < 20000; turn++) {
        struct http_req r = {
            .method_text = SLICE("GET"), .version = HTTP_11, .peer = &peer, .id = "0"};
        struct access_entry en = {.req = &r, .complete = true};
        uint64_t unix_ms = WHEN + dice_below(&d, turn % 2 == 0 ? 3000 : UINT64_C(100000000000));
        struct slice line;
        size_t n = dice_below(&d, turn % 50 == 0 ? sizeof path : 40);
        bool ascii = dice_below(&d, 2) == 0;
        for (size_t i = 0; i < n; i++) {
            path[i] = ascii ? (char)(' ' + dice_below(&d, 95)) : (char)dice_below(&d, 256);
        }
        any_peer(&d, &peer);
        r.path = slice_of(path, n);
        en.status = (int)dice_below(&d, 600);
        en.bytes = any_ns(&d);
        en.took_ns = any_ns(&d);
        en.first_ns = any_ns(&d);
        buf_clear(&want);
        twin_line(&want, &en, unix_ms);
        line = access_line(room, &second, true, &en, unix_ms);
        if (!slice_eq(line, buf_slice(&want))) {
            fail_msg("%.*s is not %s", (int)line.n, line.p, buf_cstr(&want));
        }
    }
    buf_free(&want);
}

/* The longest that strangers can make: each value is cut, and all fit. */
static void the_longest(void **state)
{
    static char bytes[100000];
    struct sockaddr_storage peer = v6("1111:2222:3333:4444:5555:6666:7777:8888");
    struct slice s = slice_of(bytes, sizeof bytes);
    struct http_field fields[] = {
        {SLICE("user-agent"), s}, {SLICE("range"), s}, {SLICE("referer"), s}};
    struct http_req r = {.method_text = s,
                         .path = s,
                         .host = s,
                         .fields = fields,
                         .nfields = 3,
                         .peer = &peer,
                         .id = "0123456789abcdef"};
    struct principal who = {.name = s};
    char room[ACCESS_LINE_BYTES];
    struct access_second second = {0};
    struct access_entry en = {
        .req = &r, .who = &who, .repo = s, .cache = "HIT", .protocol = "rsync", .outcome = "sent"};

    (void)state;
    for (unsigned kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < sizeof bytes; i++) {
            bytes[i] = kind == 0 ? '\0' : kind == 1 ? 'a' : "mrd_01234567_x/"[i % 15];
        }
        assert_in_range(access_line(room, &second, true, &en, WHEN).n, 7000, ACCESS_LINE_BYTES);
        assert_in_range(access_line(room, &second, false, &en, WHEN).n, 5000, ACCESS_LINE_BYTES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hit),
        cmocka_unit_test(nothing_known),
        cmocka_unit_test(a_session_of_rsync),
        cmocka_unit_test(escapes),
        cmocka_unit_test(a_twin_agrees),
        cmocka_unit_test(the_longest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
