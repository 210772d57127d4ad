// What rt_guess takes the columns of files for; and that every line of these files is a sample by
// the configuration that it writes.
#include "runtime/guess/rt_guess.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/config_case.h"
#include "tests/unit/runtime/test_stream_support.h"

#define ROWS 600u

typedef struct {
    char *text;
    size_t size;
} file_text;

static void put(file_text *file, const char *text)
{
    const size_t length = strlen(text);
    memcpy(file->text + file->size, text, length);
    file->size += length;
}

// A row: a letter behind a % stands for a value that depends on the number of the row.
static void put_row(file_text *file, const char *row, uint32_t i)
{
    static const char *const towns[] = {"Bern", "Genève", "Zürich", "Aarau"};
    rt_random random = {i};
    char value[64];
    for (; *row; row++) {
        const uint32_t any = rt_random_below(&random, 1u << 30);
        if (*row != '%') {
            file->text[file->size++] = *row;
            continue;
        }
        switch (*++row) {
        case 'b':
            snprintf(value, sizeof value, "%u", any & 1);
            break;
        case 'y':
            snprintf(value, sizeof value, "%s", any & 1 ? "yes" : "no");
            break;
        case 'u': // one of 200
            snprintf(value, sizeof value, "%u", 4000 + any % 200 * 37);
            break;
        case 'n': // the row's own
            snprintf(value, sizeof value, "x%08x", any);
            break;
        case 't':
            snprintf(value, sizeof value, "%s", towns[any % 4]);
            break;
        case 'q': // a small quantity
            snprintf(value, sizeof value, "%u", any % 90);
            break;
        case 'c': // cents
            snprintf(value, sizeof value, "%02u", any % 100);
            break;
        case 'd':
            snprintf(value, sizeof value, "%02u", 1 + any % 28);
            break;
        case 'h':
            snprintf(value, sizeof value, "%02u", any % 24);
            break;
        case 'm':
            snprintf(value, sizeof value, "%02u", 1 + any % 12);
            break;
        case 's':
            snprintf(value, sizeof value, "%u", 1790000000u + i * 400);
            break;
        case 'i':
            snprintf(value, sizeof value, "%u", i + 1);
            break;
        case '?': // nothing, in half of the rows
            snprintf(value, sizeof value, "%s", any & 1 ? "NULL" : "-");
            break;
        default:
            abort();
        }
        put(file, value);
    }
}

static const char *kind_of(const rt_guess_column *one)
{
    static const char *const names[] = {[RT_COLUMN_LABEL] = "label",
                                        [RT_COLUMN_DENSE] = "dense",
                                        [RT_COLUMN_CATEGORICAL] = "id",
                                        [RT_COLUMN_MULTI] = "list"};
    if (one->has_hours || one->has_days)
        return "time";
    return one->column.kind == RT_COLUMN_IGNORE ? "-" : names[one->column.kind];
}

// "name kind, name kind, ..."
static void describe(const rt_guess *guess, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < guess->column_count; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s %s%s", i ? ", " : "",
                                 guess->columns[i].name, kind_of(&guess->columns[i]),
                                 guess->columns[i].is_person ? "!" : "");
}

static rt_guess *guess_of(const char *path, const char *label)
{
    rt_guess *guess = NULL;
    rt_error error = {0};
    if (rt_guess_make(path, label, &guess, &error))
        fail_msg("%s: %s", path, error.text);
    return guess;
}

// A run would read every line.
static void expect_samples(const rt_guess *guess, const char *path, uint64_t count)
{
    rt_json json;
    rt_config config;
    rt_error error = {0};
    rt_stream *stream = NULL;
    rt_batch batch;
    rt_json_init(&json, 0);
    rt_guess_write(guess, path, &json);
    const char *written = config_write_file("guess.json", rt_json_text(&json, NULL));
    if (rt_config_open(written, NULL, 0, &config, &error) || rt_config_check(&config, &error) ||
        rt_stream_open(&config.stream, 1, &stream, &error))
        fail_msg("%s: %s", path, error.text);
    rt_batch_init(&batch, rt_stream_schema(stream)->dense_count);
    rt_status status = RT_OK;
    while (!status)
        status = rt_stream_read(stream, &batch, 256, &error);
    if (status != RT_END)
        fail_msg("%s: %s", path, error.text);
    assert_int_equal(rt_stream_statistics(stream).malformed, 0);
    assert_int_equal(rt_stream_statistics(stream).samples, count);
    assert_true(rt_stream_statistics(stream).positive > 0);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
    rt_config_fini(&config);
    rt_json_fini(&json);
}

typedef struct {
    const char *name, *header, *row, *label, *columns;
} guess_case;

static void expect_cases(const guess_case *cases, size_t count)
{
    file_text file = {malloc(1 << 20), 0};
    char found[1024];
    assert_non_null(file.text);
    for (size_t c = 0; c < count; c++) {
        file.size = 0;
        put(&file, cases[c].header);
        for (uint32_t i = 0; i < ROWS; i++)
            put_row(&file, cases[c].row, i);
        char *path = put_bytes(cases[c].name, file.text, file.size);
        rt_guess *guess = guess_of(path, cases[c].label);
        describe(guess, found, sizeof found);
        if (strcmp(found, cases[c].columns) != 0)
            fail_msg("%s:\n%s, expected\n%s", cases[c].name, found, cases[c].columns);
        expect_samples(guess, path, guess->row_count);
        rt_guess_destroy(guess);
        free(path);
    }
    free(file.text);
}

static void tables(void **state)
{
    (void)state;
    static const guess_case cases[] = {
        {"plain.csv", "day,customer_id,town,price,bought\n", "2026-%m-%d %h:30:00,%u,%t,%q.%c,%b\n",
         NULL, "day time, customer_id id!, town id, price dense, bought label"},
        {"european.csv", "\xef\xbb\xbfTag;Kunde;Ort;Preis;Gekauft\r\n",
         "%d.%m.2026;\"K%u\";\"%t\";%q,%c;%y\r\n", NULL,
         "Tag time, Kunde id!, Ort id, Preis dense, Gekauft label"},
        {"grouped.csv", "date;amount;shop;label\n", "%m/%d/2026 10:%d PM;1.%d4,%c €;%t;%b\n", NULL,
         "date time, amount dense, shop id, label label"},
        {"bare.tsv", "", "%u\t%t\t%q.%c\t%b\n", NULL, "c1 id, c2 id, c3 dense, c4 label"},
        {"bars.psv", "user_id|at|amount|clicked\n", "%u|%s|%?|%b\n%u|%s|%q|%b\n", NULL,
         "user_id id!, at time, amount dense, clicked label"},
        {"quoted.csv", ",note,price,price,always,never,click\n",
         "%i,\"%t,\n\"\"%t\"\"\",%q.%c,1,x,,%b\n", NULL,
         " -, note id, price -, price -, always -, never -, click label"},
    };
    expect_cases(cases, RT_COUNT_OF(cases));
}

static void tables_of_other_kinds(void **state)
{
    (void)state;
    static const guess_case cases[] = {
        {"blanks.csv", "town, age, spent, target\n", "%t, %q, $%q.%c, %b\n", NULL,
         "town id,  age dense,  spent dense,  target label"},
        {"codes.csv", "C1,C2,zip,value,y\n", "%u,%q,0%u,%q,%b\n", NULL,
         "C1 id, C2 dense, zip id, value dense, y label"},
        {"asked.csv", "a,b,c\n", "%t,%b,%y\n", "b", "a id, b label, c id"},
        {"chosen.csv", "a,b\n", "%t,%u\n", "a=Bern", "a label, b id"},
        {"lists.csv", "item,tags,clicked\n", "i%u,%t|%t|%t,%b\n", NULL,
         "item id, tags list, clicked label"},
        {"persons.csv", "who,from,mail,converted\n", "%n,10.0.%q.%c,a%u@example.org,%b\n", NULL,
         "who -, from id!, mail id!, converted label"},
    };
    expect_cases(cases, RT_COUNT_OF(cases));
}

static void names(void **state)
{
    (void)state;
    static const guess_case cases[] = {
        {"before.csv", "previous_purchase,bought,itemid,visitorid\n", "%b,%b,%q,%q\n", NULL,
         "previous_purchase id, bought label, itemid id, visitorid id!"},
        {"whole.csv", "is_active,exited,town\n", "%b,%b,%t\n", NULL,
         "is_active id, exited label, town id"},
        {"long.csv", "town,a name of more than fifty letters has what was bought\n", "%t,%b\n",
         NULL, "town id, a name of more than fifty letters has what was bought label"},
        {"remarks.csv", "size,town,bought\n", "%q,%t,%b\nnobody has measured it so far,%t,%b\n",
         NULL, "size id, town id, bought label"},
        {"contrary.csv", "town,bought,paid,not_bought\n", "%t,%b,%q,%b\n", NULL,
         "town id, bought label, paid dense, not_bought id"},
        {"paid.csv", "state,bought_before,item\n", "%y,%b,%u\n", NULL,
         "state label, bought_before id, item id"},
        {"shown.csv", "no_show,sms\n", "%y,%b\n", NULL, "no_show label, sms id"},
    };
    expect_cases(cases, RT_COUNT_OF(cases));
}

// A column says what the label says, by what is there, by what is not 0, by its texts, or in a part
// of the rows of label 1 alone.
static void what_is_known_with_the_label(void **state)
{
    (void)state;
    static const guess_case cases[] = {
        {"late.csv", "user,bought,revenue,kept,units,sent_back,coupon,why_not\n",
         "%u,1,%q.5,no,2,yes,%b,\n%u,1,%q.5,no,1,no,0,\n%u,0,0.00,yes,0,no,%b,%t\n", NULL,
         "user id!, bought label, revenue -, kept -, units -, sent_back -, coupon id, why_not -"},
        {"late.jsonl", "",
         "{\"item\": %q, \"won\": true, \"copy\": \"W\", \"at\": %b}\n"
         "{\"item\": %q, \"won\": false, \"copy\": \"L\", \"at\": %b}\n",
         NULL, "item id, won label, copy -, at id"},
    };
    expect_cases(cases, RT_COUNT_OF(cases));
}

static rt_guess *guess_of_rows(const char *header, const char *row, char **written_p)
{
    file_text file = {malloc(1 << 20), 0};
    rt_json json;
    assert_non_null(file.text);
    put(&file, header);
    for (uint32_t i = 0; i < ROWS; i++)
        put_row(&file, row, i);
    char *path = put_bytes("rows.csv", file.text, file.size);
    rt_guess *guess = guess_of(path, NULL);
    rt_json_init(&json, 0);
    rt_guess_write(guess, path, &json);
    *written_p = strdup(rt_json_text(&json, NULL));
    rt_json_fini(&json);
    free(path);
    free(file.text);
    return guess;
}

static void points_between_thousands(void **state)
{
    (void)state;
    char *written;
    rt_guess *guess =
        guess_of_rows("umsatz;preis;gekauft\n", "1.%d4;%q,%c;%y\n980;%q,%c;%y\n", &written);
    assert_int_equal(guess->columns[0].column.number_format, RT_NUMBER_POINT_GROUPS);
    rt_guess_destroy(guess);
    free(written);
    guess = guess_of_rows("size;price;bought\n", "1.%d4;%q.%c;%y\n", &written);
    assert_int_equal(guess->columns[0].column.number_format, RT_NUMBER_PLAIN);
    rt_guess_destroy(guess);
    free(written);
}

static void two_numbers(void **state)
{
    (void)state;
    static const char *const values[][2] = {{"1", "2"}, {"2", "1"}, {"-1", "1"}, {"1.0", "0.0"}};
    static const char *const larger[] = {"2", "2", "1", "1"};
    for (size_t i = 0; i < RT_COUNT_OF(values); i++) {
        char row[64], *written;
        snprintf(row, sizeof row, "%%u,%s\n%%u,%s\n", values[i][0], values[i][1]);
        rt_guess *guess = guess_of_rows("item,outcome\n", row, &written);
        assert_string_equal(guess->columns[1].column.label_value, larger[i]);
        rt_guess_destroy(guess);
        free(written);
    }
}

// Rows without a label are none to end a run for.
static void rows_without_a_label(void **state)
{
    (void)state;
    char *written;
    rt_guess *guess = guess_of_rows("item,bought\n", "%u,%b\n%u,%b\n%u,\n", &written);
    assert_non_null(strstr(guess->columns[1].why, "600 rows have none"));
    assert_non_null(strstr(written, "\"malformed_share_max\":1"));
    rt_guess_destroy(guess);
    free(written);
    guess = guess_of_rows("item,bought\n", "%u,%b\n", &written);
    assert_null(strstr(written, "malformed_share_max"));
    rt_guess_destroy(guess);
    free(written);
}

static void objects(void **state)
{
    (void)state;
    static const guess_case cases[] = {
        {"events.jsonl", "",
         "{\"at\": \"2026-%m-%dT%h:00:00.567+02:00\", \"user\": {\"id\": %u, \"age\": null}, "
         "\"tags\": [\"%t\", \"%t\"], \"cart\": [{\"sku\": 1}], \"price\": %q.5, \"click\": %b}\n",
         NULL, "at time, user.id id!, user.age -, tags list, cart -, price dense, click label"},
    };
    expect_cases(cases, RT_COUNT_OF(cases));
}

static void what_no_guess_is_made_of(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "it is empty"},
        {"[{\"a\": 1},\n{\"a\": 2}]\n", "an array of JSON"},
        {"{\n \"a\": 1\n}\n", "not one object a line"},
        {"<a>1</a>\n", "XML"},
        {"a\n1\n2\n", "no character divides"},
        {"a,b\n1.5,x\n2.5,y\n3.5,z\n", "no column has two values"},
        {"a,b\n1,refus\xe9\n2,refus\xe9\n3,pay\xe9\n", "not UTF-8"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        char *path = put_text("rows", cases[i].text);
        rt_guess *guess;
        rt_error error = {0};
        assert_int_equal(rt_guess_make(path, NULL, &guess, &error), RT_DATA);
        if (!strstr(error.text, cases[i].words))
            fail_msg("\"%s\" does not say \"%s\"", error.text, cases[i].words);
        free(path);
    }
    char *path = put_text("rows", "a,b\n1,x\n0,y\n1,z\n");
    rt_guess *guess;
    rt_error error = {0};
    assert_int_equal(rt_guess_make(path, "c", &guess, &error), RT_DATA);
    assert_non_null(strstr(error.text, "no column has this name"));
    assert_int_equal(rt_guess_make(path, "b", &guess, &error), RT_DATA);
    assert_non_null(strstr(error.text, "say which is label 1: --label 'b=x'"));
    assert_int_equal(rt_guess_make(path, "b=w", &guess, &error), RT_DATA);
    assert_non_null(strstr(error.text, "have no \"w\" there"));
    free(path);
}

TEST_MAIN(TEST(tables), TEST(tables_of_other_kinds), TEST(names),
          TEST(what_is_known_with_the_label), TEST(points_between_thousands), TEST(two_numbers),
          TEST(rows_without_a_label), TEST(objects), TEST(what_no_guess_is_made_of))
