/* hub_tensors.c - what a sharded model consists of: the header of each safetensors file that its index names, in one document.
 * The index and the headers are files of the tree, so all of it is read here, within bounds.
 *
 * source   huggingface_hub, HfApi.get_sharded_safetensors_metadata(); the safetensors format: u64 length, JSON of that length */
#include <jansson.h>

#include "common/codec/jwrite.h"
#include "server/repo/hosted/hub.h"
#include "server/store/blob.h"

enum { INDEX_BYTES = 64 << 20, HEADER_BYTES = 100 << 20, LENGTH_BYTES = 8, SHARDS_MAX = 10000 };

struct tensors {
    struct store *s;
    const struct plan *p;
    struct buf *out;
};

static int no(struct err *e, const char *what, struct slice path)
{
    return err_set(e, E_NOTFOUND, "%s: " SLICE_FMT, what, SLICE_ARG(path));
}

static int open_file(const struct tensors *t, struct slice path, struct blob **out, struct err *e)
{
    struct arena a = {0};
    struct entry en;
    int rc = path.p != NULL && tree_path_valid(path)
                 ? tree_get(t->s, &t->p->snap.root, path, &a, &en, e)
                 : E_NOTFOUND;

    if (rc == E_NOTFOUND || (rc == 0 && en.type != ENTRY_FILE)) {
        rc = no(e, "no such file", path);
    }
    if (rc == 0) {
        rc = blob_open(t->s, &en.digest, out, e);
    }
    arena_fini(&a);
    return rc;
}

/* n bytes of the file from `at` on, as a JSON object; NULL: they are none. */
static json_t *read_object(struct blob *b, uint64_t at, uint64_t n, struct buf *text, struct err *e)
{
    char *room;
    json_t *o;

    buf_clear(text);
    room = buf_room(text, n);
    if (room == NULL || blob_read(b, at, room, n, e) != 0) {
        return NULL;
    }
    buf_grew(text, n);
    o = jread_parse(buf_slice(text), 0, jread_values_of(n));
    if (!json_is_object(o)) {
        json_decref(o);
        return NULL;
    }
    return o;
}

/* The header is passed on as the file has it. */
static int write_header(const struct tensors *t, const char *shard, struct buf *text, struct err *e)
{
    struct slice path = slice_str(shard);
    uint8_t length[LENGTH_BYTES];
    struct blob *b = NULL;
    json_t *o = NULL;
    uint64_t n = 0;
    int rc = open_file(t, path, &b, e);

    if (rc == 0 && blob_size_bytes(b) < LENGTH_BYTES) {
        rc = no(e, "not a safetensors file", path);
    }
    if (rc == 0) {
        rc = blob_read(b, 0, length, sizeof length, e);
    }
    for (int i = LENGTH_BYTES; rc == 0 && i-- > 0;) {
        n = n << 8 | length[i];
    }
    if (rc == 0 && (n > HEADER_BYTES || n > blob_size_bytes(b) - LENGTH_BYTES ||
                    (o = read_object(b, LENGTH_BYTES, n, text, e)) == NULL)) {
        rc = no(e, "not a safetensors file", path);
    }
    if (rc == 0) {
        jwrite_key(t->out, path);
        jwrite_word(t->out, NULL, slice_trim(buf_slice(text)));
        rc = t->out->rc;
    }
    json_decref(o);
    blob_release(&b);
    return rc;
}

/* Each shard once, however many tensors are in it. */
static int write_headers(const struct tensors *t, const json_t *index, struct err *e)
{
    const json_t *map = json_object_get(index, "weight_map");
    json_t *seen = json_object(), *shard;
    struct buf text = BUF_INIT(HEADER_BYTES);
    const char *key;
    int rc = 0;

    CHECK(seen != NULL);
    jwrite_open(t->out, "headers", '{');
    json_object_foreach((json_t *)(uintptr_t)map, key, shard)
    {
        const char *name = json_string_value(shard);
        if (rc != 0 || (name != NULL && json_object_get(seen, name) != NULL)) {
            continue;
        }
        if (name == NULL || json_object_size(seen) == SHARDS_MAX) {
            rc = err_set(e, E_NOTFOUND, "the index names something other than files, or too many");
            continue;
        }
        CHECK(json_object_set_new(seen, name, json_true()) == 0);
        rc = write_header(t, name, &text, e);
    }
    jwrite_close(t->out, '}');
    buf_free(&text);
    json_decref(seen);
    return rc;
}

static int into_buf(const char *p, size_t n, void *arg)
{
    buf_add(arg, p, n);
    return ((struct buf *)arg)->rc != 0 ? -1 : 0;
}

/* The index without its weight_map, which repeats the names in the headers. */
static int write_index(const struct tensors *t, const json_t *index)
{
    const json_t *metadata = json_object_get(index, "metadata");

    jwrite_open(t->out, "index", '{');
    if (metadata != NULL) {
        jwrite_key(t->out, SLICE("metadata"));
        (void)json_dump_callback(metadata, into_buf, t->out, JSON_COMPACT | JSON_ENCODE_ANY);
    }
    jwrite_close(t->out, '}');
    return t->out->rc;
}

int hub_tensors(struct store *s, const struct plan *p, struct buf *out, struct err *e)
{
    struct tensors t = {s, p, out};
    struct buf text = BUF_INIT(INDEX_BYTES);
    struct blob *b = NULL;
    json_t *index = NULL;
    int rc = open_file(&t, p->text, &b, e);

    if (rc == 0 && (blob_size_bytes(b) > INDEX_BYTES ||
                    (index = read_object(b, 0, blob_size_bytes(b), &text, e)) == NULL)) {
        rc = no(e, "not an index of safetensors files", p->text);
    }
    if (rc == 0) {
        jwrite_open(out, NULL, '{');
        rc = write_index(&t, index);
        rc = rc == 0 ? write_headers(&t, index, e) : rc;
        jwrite_close(out, '}');
    }
    json_decref(index);
    buf_free(&text);
    blob_release(&b);
    return rc;
}
