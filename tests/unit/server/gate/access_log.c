#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/os/lock.h"
#include "common/os/newfile.h"
#include "server/gate/gate.h"

static char folder[] = "/tmp/access-log-test-XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL || chdir(folder) != 0;
}

static int teardown(void **state)
{
    (void)state;
    return chdir("/") != 0 || dir_remove_tree(folder, NULL) != 0;
}

static void write_as(struct access_log *l, unsigned loop, struct slice path, struct slice agent)
{
    struct sockaddr_storage peer = {.ss_family = AF_INET6};
    struct http_field fields[] = {{SLICE("user-agent"), agent},
                                  {SLICE("range"), SLICE("bytes=0-9")}};
    struct http_req r = {
        .method_text = SLICE("GET"),
        .version = HTTP_11,
        .path = path,
        .query = SLICE("sig=geheim"),
        .host = SLICE("m:8080"),
        .fields = fields,
        .nfields = 2,
        .peer = &peer,
        .id = "0123456789abcdef",
    };
    struct principal who = {.name = SLICE("ci")};
    struct access_entry en = {
        .req = &r,
        .who = &who,
        .repo = SLICE("hf"),
        .cache = "HIT",
        .status = 206,
        .bytes = 10,
        .took_ns = 1500000,
        .first_ns = 250000,
        .complete = true,
    };

    ((struct sockaddr_in6 *)&peer)->sin6_addr = in6addr_loopback;
    access_log_write(l, loop, &en);
}

static void write_one(struct access_log *l, struct slice path, struct slice agent)
{
    write_as(l, 1, path, agent);
}

static void hostile(char out[256])
{
    for (unsigned i = 0; i < 256; i++) {
        out[i] = (char)i;
    }
}

/* A path that nobody took it out of, another spelling, and what only looks like one. */
static void no_tokens(void **state)
{
    static const char secret[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG";
    struct access_log *l = NULL;
    struct buf text = BUF_INIT(1 << 20);
    struct slice path =
        SLICE("/t/mrd_00c0ffee_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG_89abcdef/x/mrd_a/"
              "mrd-00c0ffee-0123456789abcdefghijklmnopqrstuvwxyzABCDEFG-89abcdef");

    (void)state;
    assert_int_equal(access_log_open("tokens.log", "json", 2, &l, NULL), 0);
    write_one(l, path, SLICE("mrd_00c0ffee_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG_89abcdef"));
    write_one(l, SLICE("/mrd_00c0ffee_"), SLICE("mrd"));
    access_log_close(&l);
    assert_int_equal(buf_read_file(&text, "tokens.log", NULL), 0);
    assert_null(strstr(buf_cstr(&text), secret));
    assert_non_null(
        strstr(buf_cstr(&text), "\"path\":\"/t/mrd_00c0ffee_.../x/mrd_a/mrd-00c0ffee-...\""));
    assert_non_null(strstr(buf_cstr(&text), "\"ua\":\"mrd_00c0ffee_...\""));
    assert_non_null(strstr(buf_cstr(&text), "\"path\":\"/mrd_00c0ffee_\""));
    assert_non_null(strstr(buf_cstr(&text), "\"ua\":\"mrd\""));
    buf_free(&text);
}

static void json_lines(void **state)
{
    struct access_log *l = NULL;
    struct buf text = BUF_INIT(1 << 20);
    char bytes[256], *huge = mem_new(100000);
    struct slice rest;
    unsigned lines = 0;

    (void)state;
    hostile(bytes);
    memset(huge, '\x01', 100000);
    assert_int_equal(access_log_open("a.log", "json", 2, &l, NULL), 0);
    write_one(l, SLICE("/hf/x"), SLICE("curl/7"));
    write_one(l, slice_of(bytes, 256), slice_of(bytes, 256));
    write_one(l, slice_of(huge, 100000), slice_of(huge, 100000));
    access_log_close(&l);
    assert_int_equal(buf_read_file(&text, "a.log", NULL), 0);
    assert_null(strstr(buf_cstr(&text), "geheim"));
    rest = buf_slice(&text);
    while (rest.n > 0) {
        struct slice line = slice_cut(&rest, '\n');
        json_t *j = json_loadb(line.p, line.n, JSON_ALLOW_NUL, NULL);
        assert_non_null(j);
        assert_true(line.n < 8192);
        assert_string_equal(json_string_value(json_object_get(j, "client")), "::1");
        assert_int_equal(json_integer_value(json_object_get(j, "status")), 206);
        assert_string_equal(json_string_value(json_object_get(j, "principal")), "ci");
        if (lines++ == 0) {
            assert_string_equal(json_string_value(json_object_get(j, "path")), "/hf/x");
            assert_string_equal(json_string_value(json_object_get(j, "range")), "bytes=0-9");
            assert_true(json_real_value(json_object_get(j, "dur_ms")) == 1.5);
        }
        json_decref(j);
    }
    assert_int_equal(lines, 3);
    buf_free(&text);
    free(huge);
}

static void combined_lines(void **state)
{
    struct access_log *l = NULL;
    struct buf text = BUF_INIT(1 << 20);
    char bytes[256];

    (void)state;
    hostile(bytes);
    assert_int_equal(access_log_open("b.log", "combined", 2, &l, NULL), 0);
    write_one(l, slice_of(bytes, 256), SLICE("a \"quoted\" \x1b[31magent\n"));
    access_log_close(&l);
    assert_int_equal(buf_read_file(&text, "b.log", NULL), 0);
    for (size_t i = 0; i + 1 < text.n; i++) {
        assert_in_range((uint8_t)text.p[i], 0x20, 0x7e);
    }
    assert_int_equal(text.p[text.n - 1], '\n');
    assert_memory_equal(text.p, "::1 - ci [", 10);
    assert_non_null(strstr(buf_cstr(&text),
                           "HTTP/1.1\" 206 10 \"-\" \"a \\\"quoted\\\" \\x1b[31magent\\x0a\"\n"));
    buf_free(&text);
}

static void rotated(void **state)
{
    struct access_log *l = NULL;
    struct buf text = BUF_INIT(1 << 20);

    (void)state;
    assert_int_equal(access_log_open("c.log", "json", 2, &l, NULL), 0);
    write_one(l, SLICE("/before"), SLICE(""));
    assert_int_equal(rename("c.log", "c.log.1"), 0);
    access_log_reopen(l);
    while (access("c.log", F_OK) != 0) {
        usleep(1000);
    }
    write_one(l, SLICE("/after"), SLICE(""));
    access_log_close(&l);
    assert_int_equal(buf_read_file(&text, "c.log.1", NULL), 0);
    assert_non_null(strstr(buf_cstr(&text), "/before"));
    buf_clear(&text);
    assert_int_equal(buf_read_file(&text, "c.log", NULL), 0);
    assert_non_null(strstr(buf_cstr(&text), "/after"));
    buf_free(&text);
}

enum { LINES = 3000 };

struct writer {
    struct access_log *log;
    unsigned loop;
};

static void *write_many(void *arg)
{
    const struct writer *w = arg;

    for (unsigned i = 0; i < LINES; i++) {
        char path[24];
        int n = snprintf(path, sizeof path, "/%u/%08u", w->loop, i);
        write_as(w->log, w->loop, slice_of(path, (size_t)n), SLICE("agent"));
    }
    return NULL;
}

/* Whole lines, those of one loop in order. */
static unsigned count_lines(const char *path)
{
    struct buf text = BUF_INIT(16 << 20);
    unsigned n = 0, last[2] = {0}, loop, number;
    struct slice rest;

    assert_int_equal(buf_read_file(&text, path, NULL), 0);
    rest = buf_slice(&text);
    for (; rest.n > 0; n++) {
        struct slice line = slice_cut(&rest, '\n');
        const char *at = memmem(line.p, line.n, "\"path\":\"/", 9);
        assert_true(at != NULL && line.p[0] == '{' && line.p[line.n - 1] == '}');
        if (sscanf(at + 8, "/%u/%u", &loop, &number) == 2 && loop < ARRAY_LEN(last)) {
            assert_true(number == 0 || number > last[loop]);
            last[loop] = number;
        }
    }
    buf_free(&text);
    return n;
}

/* Two loops and another thread write while the log moves and is reopened: each line is in a file or
 * counted. */
static void loops_beside_reloads(void **state)
{
    struct access_log *l = NULL;
    struct writer w[] = {{.loop = 0}, {.loop = 1}, {.loop = ACCESS_NO_LOOP}};
    pthread_t thread[ARRAY_LEN(w)];
    uint64_t dropped;

    (void)state;
    assert_int_equal(access_log_open("d.log", "json", 2, &l, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(w); i++) {
        w[i].log = l;
        thread[i] = thread_start("writer", write_many, &w[i]);
    }
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(access_log_set(l, i % 2 == 0 ? "e.log" : "d.log", "json", NULL), 0);
        access_log_reopen(l);
    }
    for (size_t i = 0; i < ARRAY_LEN(w); i++) {
        pthread_join(thread[i], NULL);
    }
    dropped = access_log_dropped(l); /* by rings: what a log writer takes, it writes */
    access_log_close(&l);
    assert_int_equal(count_lines("d.log") + count_lines("e.log") + dropped, ARRAY_LEN(w) * LINES);
}

static void none(void **state)
{
    struct access_log *l = NULL;

    (void)state;
    assert_int_equal(access_log_open("none", "json", 2, &l, NULL), 0);
    write_one(l, SLICE("/x"), SLICE(""));
    access_log_reopen(l);
    assert_int_equal(access_log_dropped(l), 0);
    access_log_close(&l);
    assert_int_equal(access_log_open("no/such/folder", "json", 2, &l, NULL), E_NOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_lines),     cmocka_unit_test(no_tokens),
        cmocka_unit_test(combined_lines), cmocka_unit_test(rotated),
        cmocka_unit_test(none),           cmocka_unit_test(loops_beside_reloads),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
