#include "agent/train/companions.h"

#include <limits.h>
#include <stdio.h>

enum { FILE_MAX_BYTES = 64 << 20 };

static const char *const names[] = {"tokenizer.json",    "tokenizer_config.json",
                                    "tokenizer.model",   "special_tokens_map.json",
                                    "added_tokens.json", "vocab.json",
                                    "merges.txt",        "generation_config.json"};

int companions_load(const char *dir, struct companions *out, struct err *e)
{
    int rc = 0;

    *out = (struct companions){0};
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(names); i++) {
        struct buf text = BUF_INIT(FILE_MAX_BYTES);
        char path[PATH_MAX];

        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        rc = buf_read_file(&text, path, e);
        if (rc == 0) {
            out->name[out->count] = names[i];
            out->text[out->count++] = text;
        } else {
            buf_free(&text);
            rc = rc == E_NOTFOUND ? 0 : rc;
        }
    }
    if (rc != 0) {
        companions_free(out);
    }
    return rc;
}

void companions_free(struct companions *c)
{
    for (size_t i = 0; i < c->count; i++) {
        buf_free(&c->text[i]);
    }
    *c = (struct companions){0};
}
