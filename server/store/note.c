#include "server/store/note.h"

#include "common/base/endian.h"
#include "server/store/head.h"

enum {
    KEY_BYTES = 16 << 10,
    ROW_HEAD = 8,
    ROW_BYTES = ROW_HEAD + NOTE_AUTHOR_MAX + NOTE_TITLE_MAX + NOTE_MESSAGE_MAX
};

bool note_fits(const struct note *n)
{
    return n->author.n <= NOTE_AUTHOR_MAX && n->title.n <= NOTE_TITLE_MAX &&
           n->message.n <= NOTE_MESSAGE_MAX;
}

/* version 1 | author n 1 | title n 2 | message n 4 | the three */
void note_put(struct batch *b, struct slice repo, struct slice tree, uint64_t seq,
              const struct note *n)
{
    struct buf key = BUF_INIT(KEY_BYTES);
    struct buf row = BUF_INIT(ROW_BYTES);
    char head[ROW_HEAD] = {1};

    if (n->author.n + n->title.n + n->message.n == 0) {
        return;
    }
    CHECK(note_fits(n));
    be_put(head + 1, 1, n->author.n);
    be_put(head + 2, 2, n->title.n);
    be_put(head + 4, 4, n->message.n);
    buf_add(&row, head, sizeof head);
    buf_adds(&row, n->author);
    buf_adds(&row, n->title);
    buf_adds(&row, n->message);
    snap_key(&key, repo, tree, seq);
    batch_put(b, TABLE_NOTE, buf_slice(&key), buf_slice(&row));
    buf_free(&key);
    buf_free(&row);
}

static int decode_note(struct slice row, struct note *out, struct err *e)
{
    size_t author, title, message;

    if (row.n < ROW_HEAD || row.p[0] != 1) {
        return err_set(e, E_CORRUPT, "the note of a version cannot be decoded");
    }
    author = (size_t)be_get(row.p + 1, 1);
    title = (size_t)be_get(row.p + 2, 2);
    message = (size_t)be_get(row.p + 4, 4);
    row = slice_from(row, ROW_HEAD);
    if (author > row.n || title > row.n - author || message != row.n - author - title) {
        return err_set(e, E_CORRUPT, "the note of a version is truncated");
    }
    out->author = slice_first(row, author);
    out->title = slice_first(slice_from(row, author), title);
    out->message = slice_from(row, author + title);
    return 0;
}

int note_get(struct store *s, struct slice repo, struct slice tree, uint64_t seq, struct arena *a,
             struct note *out, struct err *e)
{
    struct buf key = BUF_INIT(KEY_BYTES);
    struct buf row = BUF_INIT(ROW_BYTES);
    int rc;

    *out = (struct note){SLICE(""), SLICE(""), SLICE("")};
    snap_key(&key, repo, tree, seq);
    rc = store_get(s, TABLE_NOTE, buf_slice(&key), &row, e);
    rc = rc != 0 ? rc : decode_note(arena_copy(a, buf_slice(&row)), out, e);
    buf_free(&key);
    buf_free(&row);
    return rc;
}
