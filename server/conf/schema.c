#include "server/conf/schema.h"

#include <stddef.h>

#include "server/conf.h"

#define SECTION(name, text, parent, titled, type, doc) typedef type section_type_##name;
#define SETTING(section, key, kind, field, def, range, doc)
#include "server/settings.def"
#undef SECTION
#undef SETTING

static const struct setting settings[] = {
#define SECTION(name, text, parent, titled, type, doc)
#define SETTING(section, key, kind, field, def, range, doc)                                        \
    {SECTION_##section,                                                                            \
     #key,                                                                                         \
     KIND_##kind,                                                                                  \
     offsetof(section_type_##section, field),                                                      \
     def,                                                                                          \
     range,                                                                                        \
     doc},
#include "server/settings.def"
#undef SECTION
#undef SETTING
};

static const struct section_info sections[SECTIONS] = {
#define SECTION(name, text, parent, titled, type, doc) {text, SECTION_##parent, titled, doc},
#define SETTING(section, key, kind, field, def, range, doc)
#include "server/settings.def"
#undef SECTION
#undef SETTING
};

const struct section_info *section_info(enum section s)
{
    CHECK((unsigned)s < SECTIONS);
    return &sections[s];
}

const struct setting *section_settings(enum section s, size_t *count)
{
    size_t first = 0, n = 0;

    while (settings[first].section != s) {
        first++;
        CHECK(first < ARRAY_LEN(settings));
    }
    while (first + n < ARRAY_LEN(settings) && settings[first + n].section == s) {
        n++;
    }
    *count = n;
    return &settings[first];
}

bool kind_is_list(enum kind k)
{
    return k == KIND_HOSTS || k == KIND_NETWORKS;
}

/* Letters to change, add, drop or swap (Damerau, optimal string alignment); words are short. */
static unsigned distance(struct slice a, struct slice b)
{
    enum { WORD = 32 };
    unsigned row[3][WORD + 1];
    unsigned *before = row[0], *above = row[1], *here = row[2];

    if (a.n > WORD || b.n > WORD) {
        return UINT32_MAX;
    }
    for (unsigned j = 0; j <= b.n; j++) {
        above[j] = j;
    }
    for (unsigned i = 1; i <= a.n; i++) {
        unsigned *spare = before;
        here[0] = i;
        for (unsigned j = 1; j <= b.n; j++) {
            unsigned d = above[j - 1] + (a.p[i - 1] != b.p[j - 1]);
            d = d < above[j] + 1 ? d : above[j] + 1;
            d = d < here[j - 1] + 1 ? d : here[j - 1] + 1;
            if (i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1] &&
                before[j - 2] + 1 < d) {
                d = before[j - 2] + 1;
            }
            here[j] = d;
        }
        before = above;
        above = here;
        here = spare;
    }
    return above[b.n];
}

const char *word_nearest(const char *const *words, size_t count, struct slice word)
{
    const char *best = NULL;
    unsigned best_d = word.n < 4 ? 2 : word.n < 8 ? 3 : 4; /* must be better than this */

    for (size_t i = 0; i < count; i++) {
        unsigned d = distance(word, slice_str(words[i]));
        if (d < best_d) {
            best_d = d;
            best = words[i];
        }
    }
    return best;
}

const char *schema_nearest(enum section in, struct slice word)
{
    const char *words[ARRAY_LEN(settings) + SECTIONS];
    size_t n, count = 0;
    const struct setting *set = section_settings(in, &n);

    for (size_t i = 0; i < n; i++) {
        words[count++] = set[i].key;
    }
    for (size_t i = 0; i < SECTIONS; i++) {
        if (sections[i].parent == in && i != SECTION_ROOT) {
            words[count++] = sections[i].name;
        }
    }
    return word_nearest(words, count, word);
}

static const char *kind_text(const struct setting *s)
{
    switch (s->kind) {
    case KIND_TEXT:
        return "text";
    case KIND_PATH:
    case KIND_FILE:
    case KIND_LOG:
        return "path";
    case KIND_URL:
        return "URL";
    case KIND_SECRET:
        return "credential:NAME or file:PATH";
    case KIND_CHOICE:
        return s->range;
    case KIND_HOSTS:
        return "list of hosts";
    case KIND_NETWORKS:
        return "list of networks";
    case KIND_BOOL:
        return "true or false";
    case KIND_COUNT:
        return "number";
    case KIND_SIZE:
    case KIND_SIZE32:
        return "size";
    case KIND_SIZE_OR_SHARE:
        return "size or share";
    case KIND_SHARE:
        return "share";
    case KIND_RATE:
    case KIND_RATE32:
        return "size/s";
    case KIND_FREQUENCY:
        return "number/s";
    case KIND_SPAN:
    case KIND_SECONDS:
    case KIND_SECONDS32:
        return "time";
    }
    return "";
}

/* A cell of a Markdown table: '|' would end it. */
static void cell(struct buf *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|') {
            buf_byte(out, '\\');
        }
        buf_byte(out, (uint8_t)*text);
    }
}

static void doc_section(struct buf *out, enum section sec)
{
    const struct section_info *info = &sections[sec];
    size_t n;
    const struct setting *set = section_settings(sec, &n);

    if (sec != SECTION_ROOT) {
        buf_addf(out, "\n## `%s%s%s%s { }`%s%s%s\n\n", info->name, info->titled[0] ? " \"" : "",
                 info->titled, info->titled[0] ? "\"" : "",
                 info->parent != SECTION_ROOT ? " in `" : "",
                 info->parent != SECTION_ROOT ? sections[info->parent].name : "",
                 info->parent != SECTION_ROOT ? "`" : "");
    }
    buf_addf(out, "%s\n\n| Key | Value | Default | What it does |\n|---|---|---|---|\n", info->doc);
    for (size_t i = 0; i < n; i++) {
        const char *def = set[i].def;
        buf_addf(out, "| `%s` | ", set[i].key);
        cell(out, kind_text(&set[i]));
        if (set[i].range[0] != '\0' && set[i].kind != KIND_CHOICE) {
            buf_addf(out, ", %s", set[i].range);
        }
        buf_addf(out, " | %s%s%s | ", def != NULL && *def != '!' ? "`" : "",
                 def == NULL   ? ""
                 : *def == '!' ? "must be set"
                               : def,
                 def != NULL && *def != '!' ? "`" : "");
        cell(out, set[i].doc);
        buf_str(out, " |\n");
    }
}

void schema_doc(struct buf *out)
{
    buf_str(out, "# Every setting of mirrord.conf\n\n"
                 "Made from `server/settings.def` by `make docs`. The syntax is told in "
                 "`docs/operations.md`. Sizes are\n"
                 "written `64k 10g` (powers of 1024), times `250ms 30s 5m 1d`, rates `100m/s`, "
                 "shares `5%`.\n\n");
    for (unsigned i = 0; i < SECTIONS; i++) {
        doc_section(out, (enum section)i);
    }
}
