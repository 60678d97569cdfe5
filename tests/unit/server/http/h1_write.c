#include "server/http/h1_write.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void check(const struct h1_answer *a, const char *want)
{
    char room[4096];
    size_t n = h1_answer_write(room, a);

    assert_true(n <= h1_answer_bound(a->reply) && n < sizeof room);
    room[n] = '\0';
    assert_string_equal(room, want);
}

static struct h1_answer answer_of(const struct http_reply *r)
{
    return (struct h1_answer){.reply = r,
                              .now = SLICE("Sun, 06 Nov 1994 08:49:37 GMT"),
                              .id = SLICE("0123456789abcdef"),
                              .framing = H1_NO_BODY};
}

#define FIRST                                                                                      \
    "HTTP/1.1 200 OK\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\nserver: mirrord\r\n"                \
    "x-content-type-options: nosniff\r\ncontent-security-policy: " REPLY_SANDBOX "\r\n"            \
    "x-request-id: 0123456789abcdef\r\n"

static void heads(void **state)
{
    struct http_reply r = {.status = 200};
    struct h1_answer a = answer_of(&r);

    (void)state;
    check(&a, FIRST "\r\n");
    reply_add(&r, SLICE("etag"), SLICE("\"x\""));
    reply_add(&r, SLICE("empty"), SLICE(""));
    a.framing = H1_LENGTH;
    check(&a, FIRST "etag: \"x\"\r\nempty: \r\ncontent-length: 0\r\n\r\n");
    a.length = UINT64_MAX - 1;
    a.keep_alive = true;
    check(&a, FIRST "etag: \"x\"\r\nempty: \r\ncontent-length: 18446744073709551614\r\n"
                    "connection: keep-alive\r\n\r\n");
    a.framing = H1_CHUNKED;
    a.close = true;
    check(&a, FIRST "etag: \"x\"\r\nempty: \r\ntransfer-encoding: chunked\r\n"
                    "connection: close\r\n\r\n");
}

/* What the origin says of when it made it stands instead of our own clock. */
static void the_origins_date(void **state)
{
    struct http_reply r = {.status = 599, .date = SLICE("Mon, 07 Nov 1994 08:49:37 GMT")};
    struct h1_answer a = answer_of(&r);
    char room[4096];
    struct slice head = slice_of(room, h1_answer_write(room, &a));

    (void)state;
    assert_true(slice_starts(head, SLICE("HTTP/1.1 599 ")));
    assert_non_null(memmem(head.p, head.n, "\r\ndate: Mon, 07 Nov", 19));
    assert_null(memmem(head.p, head.n, "Sun", 3));
}

/* As many fields as a reply has room for, long ones. */
static void bounds(void **state)
{
    static char value[3000], room[REPLY_FIELDS * sizeof value + 4096];
    struct http_reply r = {.status = 200};
    struct h1_answer a = answer_of(&r);
    size_t n;

    (void)state;
    memset(value, 'v', sizeof value);
    a.framing = H1_LENGTH;
    a.length = UINT64_MAX - 1;
    a.close = true;
    for (int i = 0; i < REPLY_FIELDS; i++) {
        reply_add(&r, SLICE("name"), slice_of(value, sizeof value));
    }
    n = h1_answer_write(room, &a);
    assert_true(n <= h1_answer_bound(&r));
    assert_memory_equal(room + n - 4, "\r\n\r\n", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads),
        cmocka_unit_test(the_origins_date),
        cmocka_unit_test(bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
