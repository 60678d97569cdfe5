#include "server/conf/schema.h"

#include <stddef.h>

#include "server/conf/conf.h"

#define SECTION(name, text, parent, titled, type, doc) typedef type section_type_##name;
#define SETTING(section, key, kind, field, def, range, doc)
#include "server/conf/settings.def"
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
#include "server/conf/settings.def"
#undef SECTION
#undef SETTING
};

static const struct section_info sections[SECTIONS] = {
#define SECTION(name, text, parent, titled, type, doc) {text, SECTION_##parent, titled, doc},
#define SETTING(section, key, kind, field, def, range, doc)
#include "server/conf/settings.def"
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
    return k == KIND_HOSTS || k == KIND_URLS || k == KIND_NETWORKS || k == KIND_UPSTREAMS ||
           k == KIND_ORIGINS || k == KIND_TEXTS;
}

const struct settings_grammar *schema_grammar(struct arena *a)
{
    struct settings_grammar *g = ARENA_NEW(a, struct settings_grammar);
    struct settings_section *s = arena_alloc(a, SECTIONS * sizeof(*s));

    for (unsigned i = 0; i < SECTIONS; i++) {
        size_t n;
        const struct setting *set = section_settings((enum section)i, &n);
        struct settings_key *keys = arena_alloc(a, n * sizeof(*keys));
        for (size_t k = 0; k < n; k++) {
            keys[k] = (struct settings_key){set[k].key, kind_is_list(set[k].kind)};
        }
        s[i] = (struct settings_section){
            sections[i].name, sections[i].parent,
            sections[i].titled[0] != '\0' ? SETTINGS_TITLED : SETTINGS_ONCE, keys, n};
    }
    *g = (struct settings_grammar){
        .sections = s,
        .nsections = SECTIONS,
        .manual = "mirrord.conf(5)",
        .absent = "name another with -c, or run `mirrorctl init` to write one",
        .includes = true,
    };
    return g;
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
    case KIND_UPSTREAM:
        return "URL";
    case KIND_ORIGINS:
        return "URL, or list of URLs";
    case KIND_SECRET:
        return "credential:NAME or file:PATH";
    case KIND_CHOICE:
        return s->range;
    case KIND_HOSTS:
        return "list of hosts";
    case KIND_URLS:
    case KIND_UPSTREAMS:
        return "list of URLs";
    case KIND_NETWORKS:
        return "list of networks";
    case KIND_TEXTS:
        return "list of texts";
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
                 "Made from `server/conf/settings.def` by `make docs`. `mirrord.conf(5)` "
                 "explains the syntax. Sizes are\n"
                 "written `64k 10g` (powers of 1024), times `250ms 30s 5m 1d`, rates `100m/s`, "
                 "shares `5%`.\n\n");
    for (unsigned i = 0; i < SECTIONS; i++) {
        doc_section(out, (enum section)i);
    }
}
