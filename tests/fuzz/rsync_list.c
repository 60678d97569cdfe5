/* rsync_list.c - fuzzes the decoder of file lists. The first byte says how: form of flags, hard
 * links, size of pieces. */
#include "server/sync/rsync/list.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* As a peer's frames come: what a piece leaves stands before the next. */
static int feed(struct file_list *l, struct slice all, size_t step, bool *done)
{
    struct buf carry = BUF_INIT(1 << 20);
    int rc = 0;

    *done = false;
    while (all.n > 0 && rc == 0 && !*done) {
        struct slice rest;
        size_t piece = all.n < step ? all.n : step;
        buf_add(&carry, all.p, piece);
        all = slice_from(all, piece);
        rest = buf_slice(&carry);
        rc = list_feed(l, &rest, done, NULL);
        buf_drop(&carry, carry.n - rest.n);
        CHECK(rc != 0 || *done || rest.n < 3 * LIST_PATH_MAX);
    }
    buf_free(&carry);
    return rc;
}

static void look(struct file_list *l)
{
    char path[LIST_PATH_MAX + 1];
    char last[LIST_PATH_MAX + 1];
    struct slice before = SLICE_NONE;

    for (uint32_t i = 0; i < list_count(l); i++) {
        const struct list_entry *en = list_at(l, i);
        struct slice s = list_path(l, en, path);
        int32_t leader = list_leader(l, en);
        CHECK(list_name_valid(s));
        CHECK(leader == LIST_NONE || (leader >= 0 && (uint32_t)leader < list_count(l)));
        CHECK(leader == LIST_NONE || list_type(list_at(l, (uint32_t)leader)) == LIST_FILE);
        if (list_type(en) == LIST_LINK) {
            struct slice target = list_target(l, en);
            CHECK(target.n > 0 && target.n <= LIST_PATH_MAX && slice_find(target, '\0') < 0);
        }
        if (list_type(en) != LIST_BLANK) {
            CHECK(before.p == NULL || !slice_eq(before, s) ||
                  list_type(en) == LIST_FOLDER); /* a file and a folder of one name lie apart */
            memcpy(last, path, s.n);
            before = slice_of(last, s.n);
        }
        list_forget(l, i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct list_limits limits = {.entries = 2000, .text_bytes = 1 << 20};
    struct list_form form;
    struct file_list *whole;
    struct file_list *pieces;
    struct slice all;
    bool done_whole;
    bool done_pieces;
    int rc;

    if (n < 1) {
        return 0;
    }
    form = (struct list_form){(p[0] & 1) != 0, (p[0] & 2) != 0, (p[0] & 4) != 0};
    all = slice_of(p + 1, n - 1);
    whole = list_new(form, limits);
    pieces = list_new(form, limits);
    rc = feed(whole, all, n + 1, &done_whole);
    CHECK(feed(pieces, all, 1u + (p[0] >> 3), &done_pieces) == rc);
    CHECK(done_whole == done_pieces && list_count(whole) == list_count(pieces));
    CHECK(list_sort(whole, NULL) == 0 && list_sort(pieces, NULL) == 0);
    look(whole);
    list_free(&whole);
    list_free(&pieces);
    return 0;
}
