#include "agent/train/shardset.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

struct made {
    struct shard shard;
    char *name;
};

struct shardset {
    char *path;
    bool only;
    uint64_t limit_tokens;
    struct shard about;
    struct shard_writer *open; /* NULL: the next token begins one */
    struct made *made;
    size_t count;
    size_t room;
    uint64_t tokens;
};

int shardset_open(const char *path, bool only, uint64_t limit_bytes, const struct shard *about,
                  struct shardset **out, struct err *e)
{
    struct shardset *s;
    uint32_t token_bytes = shard_token_bytes(about->vocab);

    *out = NULL;
    if (limit_bytes < SHARD_HEADER_BYTES + token_bytes) {
        return err_set(e, E_USAGE, "a shard of %llu bytes is too small for one token",
                       (unsigned long long)limit_bytes);
    }
    s = NEW(struct shardset);
    s->path = mem_strdup(path);
    s->only = only;
    s->limit_tokens = (limit_bytes - SHARD_HEADER_BYTES) / token_bytes;
    s->about = *about;
    s->about.token_bytes = token_bytes;
    *out = s;
    return 0;
}

void shardset_close(struct shardset **sp)
{
    struct shardset *s = *sp;

    if (s != NULL) {
        *sp = NULL;
        shard_abort(&s->open);
        for (size_t i = 0; i < s->count; i++) {
            free(s->made[i].name);
        }
        free(s->made);
        free(s->path);
        free(s);
    }
}

static int begin_shardset(struct shardset *s, struct err *e)
{
    char path[PATH_MAX];
    const char *slash;

    if (s->count == s->room) {
        s->room = 2 * s->room + 16;
        s->made = realloc(s->made, s->room * sizeof *s->made);
        CHECK(s->made != NULL);
    }
    if (s->only) {
        snprintf(path, sizeof path, "%s", s->path);
    } else {
        snprintf(path, sizeof path, "%s-%05zu.bin", s->path, s->count);
    }
    slash = strrchr(path, '/');
    s->made[s->count] = (struct made){.name = mem_strdup(slash != NULL ? slash + 1 : path)};
    s->count++;
    return shard_create(path, &s->about, &s->open, e);
}

int shardset_finish(struct shardset *s, struct err *e)
{
    return s->open == NULL ? 0 : shard_commit(&s->open, &s->made[s->count - 1].shard, e);
}

int shardset_add(struct shardset *s, const void *tokens, size_t bytes, struct err *e)
{
    const char *at = tokens;
    int rc = 0;

    while (rc == 0 && bytes > 0) {
        uint64_t room;
        size_t some;

        if (s->open == NULL) {
            rc = begin_shardset(s, e);
            if (rc != 0) {
                break;
            }
        }
        room = (s->limit_tokens - shard_written(s->open)) * s->about.token_bytes;
        some = (size_t)min_u64(bytes, room);
        rc = shard_write(s->open, at, some, e);
        s->tokens += some / s->about.token_bytes;
        at += some;
        bytes -= some;
        if (rc == 0 && some == room) {
            rc = shardset_finish(s, e);
        }
    }
    return rc;
}

uint64_t shardset_tokens(const struct shardset *s)
{
    return s->tokens;
}

size_t shardset_count(const struct shardset *s)
{
    return s->count;
}

const struct shard *shardset_at(const struct shardset *s, size_t i, const char **name)
{
    *name = s->made[i].name;
    return &s->made[i].shard;
}
