#include "server/repo/origin_field.h"

#include <ctype.h>
#include <stdlib.h>

#include "server/repo/repo.h"

enum { NAME_BYTES = 64 };

static const char *const passes[] = {
#define PASSES(name)       name,
#define REFUSED(name, why) /* below */
#include "server/repo/origin_fields.def"
#undef PASSES
#undef REFUSED
};

static const struct {
    const char *name;
    const char *why;
} refused[] = {
#define PASSES(name)       /* above */
#define REFUSED(name, why) {name, why},
#include "server/repo/origin_fields.def"
#undef PASSES
#undef REFUSED
};

static bool is_prefix(struct slice pattern)
{
    return pattern.n > 0 && pattern.p[pattern.n - 1] == '*';
}

/* The pattern: a name, or the beginning of names and '*'. */
static bool field_pattern_matches(struct slice pattern, struct slice name)
{
    return is_prefix(pattern) ? slice_starts(name, slice_first(pattern, pattern.n - 1))
                              : slice_eq(name, pattern);
}

static bool overlap(struct slice a, struct slice b)
{
    struct slice a_begins = slice_first(a, a.n - is_prefix(a));
    struct slice b_begins = slice_first(b, b.n - is_prefix(b));

    return field_pattern_matches(a, b_begins) || field_pattern_matches(b, a_begins);
}

bool origin_field_passes(const struct repo *r, struct slice name)
{
    for (size_t i = 0; i < ARRAY_LEN(passes); i++) {
        if (field_pattern_matches(slice_str(passes[i]), name)) {
            return true;
        }
    }
    for (size_t i = 0; i < r->passes; i++) {
        if (field_pattern_matches(slice_str(r->pass[i]), name)) {
            return true;
        }
    }
    return false;
}

/* --- what a repo adds ------------------------------------------------------------------------- */

static bool is_origin_field_name(struct slice name)
{
    for (size_t i = 0; i < name.n; i++) {
        if (!isalnum((unsigned char)name.p[i]) && name.p[i] != '-' && name.p[i] != '_') {
            return false;
        }
    }
    return name.n > 0 && name.n <= NAME_BYTES;
}

static void lower_field_name(char *to, const char *from)
{
    for (; *from != '\0'; from++) {
        *to++ = (char)tolower((unsigned char)*from);
    }
    *to = '\0';
}

const char *origin_field_refuses(const char *name)
{
    char small[NAME_BYTES + 2];
    struct slice n = slice_str(name);

    if (n.n >= sizeof small || !is_origin_field_name(slice_first(n, n.n - is_prefix(n)))) {
        return "that is not a valid field name, nor the beginning of one followed by '*'";
    }
    lower_field_name(small, name);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        if (overlap(slice_str(refused[i].name), slice_str(small))) {
            return refused[i].why;
        }
    }
    return NULL;
}

const char *origin_field_no_target(const char *name)
{
    static const char ending[] = "-cache-control";
    char small[NAME_BYTES + 2];
    struct slice n = slice_str(name);

    if (n.n >= sizeof small || !is_origin_field_name(n)) {
        return "that is not a valid field name";
    }
    lower_field_name(small, name);
    return n.n >= sizeof ending && slice_ends(slice_str(small), slice_str(ending))
               ? NULL
               : "the name of such a field must end in -Cache-Control";
}
