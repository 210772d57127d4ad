#include "runtime/stream/rt_synthetic_shape.h"

// Criteo Display Advertising Challenge, 2014: sizes of the whole set, shares and quantiles of a
// 0.3% sample of its 7 days. There the fields of an entity nearly determine each other (of two
// samples with the same C3, all have the same C4, C12, C16, C21 and C24).
static const rt_shape criteo = {
    .clicks = 256,
    .field_count = 26,
    .dense_count = 13,
    .fields = {{"C1", 1460, 0, 501, 0},    {"C2", 583, 0, 113, 0},    {"C3", 10131227, 35, 0, 1},
               {"C4", 2202608, 35, 0, 1},  {"C5", 305, 0, 674, 0},    {"C6", 24, 126, 398, 0},
               {"C7", 12517, 0, 0, 2},     {"C8", 633, 0, 595, 0},    {"C9", 3, 0, 899, 0},
               {"C10", 93145, 0, 219, 0},  {"C11", 5683, 0, 0, 2},    {"C12", 8351593, 35, 0, 1},
               {"C13", 3194, 0, 0, 2},     {"C14", 27, 0, 353, 0},    {"C15", 14992, 0, 0, 3},
               {"C16", 5461306, 35, 0, 1}, {"C17", 10, 0, 460, 0},    {"C18", 5652, 0, 0, 3},
               {"C19", 2173, 437, 348, 0}, {"C20", 4, 437, 192, 0},   {"C21", 7046547, 35, 0, 1},
               {"C22", 18, 763, 134, 0},   {"C23", 15, 0, 435, 0},    {"C24", 286181, 35, 0, 1},
               {"C25", 105, 437, 148, 0},  {"C26", 142572, 437, 0, 1}},
    .dense = {{"I1", 455, {0, 0, 0, 1, 3, 9, 40, 425}},
              {"I2", 0, {0, 0, 0, 3, 35, 182, 2199, 9814}},
              {"I3", 210, {0, 1, 2, 6, 17, 44, 219, 38443}},
              {"I4", 212, {0, 1, 2, 4, 10, 18, 41, 349}},
              {"I5", 26, {0, 11, 319, 2805, 10100, 34486, 347117, 2071071}},
              {"I6", 224, {0, 1, 8, 32, 103, 278, 1347, 111105}},
              {"I7", 43, {0, 0, 1, 3, 11, 34, 213, 3870}},
              {"I8", 1, {0, 0, 2, 7, 19, 34, 48, 1689}},
              {"I9", 43, {0, 2, 10, 38, 108, 261, 984, 9465}},
              {"I10", 455, {0, 0, 0, 1, 1, 1, 3, 7}},
              {"I11", 43, {0, 0, 1, 1, 3, 6, 25, 115}},
              {"I12", 769, {0, 0, 0, 0, 1, 1, 19, 161}},
              {"I13", 212, {0, 1, 2, 4, 10, 21, 49, 1574}}},
};

// Avazu, 2014: sizes of the whole set (40,428,967 rows), as is the share of device_id; the other
// shares are those of one hour.
static const rt_shape avazu = {
    .clicks = 170,
    .field_count = 22,
    .dense_count = 0,
    .fields = {{"hour", 240, 0, 0, 0},
               {"C1", 7, 0, 926, 0},
               {"banner_pos", 7, 0, 805, 0},
               {"site_id", 4737, 0, 358, 1},
               {"site_domain", 7745, 0, 358, 1},
               {"site_category", 26, 0, 385, 1},
               {"app_id", 8552, 0, 782, 2},
               {"app_domain", 559, 0, 831, 2},
               {"app_category", 36, 0, 789, 2},
               {"device_id", 2686408, 0, 825, 0},
               {"device_ip", 6729486, 0, 0, 0},
               {"device_model", 8251, 0, 0, 0},
               {"device_type", 5, 0, 927, 0},
               {"device_conn_type", 4, 0, 905, 0},
               {"C14", 2626, 0, 0, 3},
               {"C15", 8, 0, 953, 0},
               {"C16", 9, 0, 957, 0},
               {"C17", 435, 0, 391, 3},
               {"C18", 4, 0, 697, 0},
               {"C19", 68, 0, 566, 0},
               {"C20", 172, 0, 623, 0},
               {"C21", 60, 0, 391, 0}},
};

// Criteo Sponsored Search Conversion Log: its columns (17 categorical, 3 numbers). Sizes, shares
// and quantiles are estimates of the right order, no counts.
static const rt_shape search = {
    .clicks = 108,
    .field_count = 17,
    .dense_count = 3,
    .fields = {{"product_age_group", 11, 740, 0, 1},
               {"device_type", 4, 0, 600, 0},
               {"audience_id", 20000, 720, 0, 0},
               {"product_gender", 7, 740, 0, 1},
               {"product_brand", 55000, 460, 0, 1},
               {"product_category1", 21, 390, 0, 1},
               {"product_category2", 180, 390, 0, 1},
               {"product_category3", 1100, 450, 0, 1},
               {"product_category4", 2200, 620, 0, 1},
               {"product_category5", 1700, 880, 0, 1},
               {"product_category6", 400, 980, 0, 1},
               {"product_category7", 60, 999, 0, 1},
               {"product_country", 20, 0, 0, 2},
               {"product_id", 2000000, 40, 0, 1},
               {"product_title", 1500000, 40, 0, 1},
               {"partner_id", 310, 0, 0, 2},
               {"user_id", 13000000, 0, 0, 0}},
    .dense = {{"nb_clicks_1week", 450, {0, 0, 2, 8, 30, 110, 800, 10000}},
              {"product_price", 0, {0, 0, 0, 20, 70, 180, 900, 20000}},
              {"click_hour", 0, {0, 3, 8, 13, 18, 21, 23, 24}}},
};

const rt_shape *rt_shape_of(rt_synthetic_shape shape)
{
    switch (shape) {
    case RT_SYNTHETIC_AVAZU:
        return &avazu;
    case RT_SYNTHETIC_SEARCH:
        return &search;
    case RT_SYNTHETIC_CRITEO:
        break;
    }
    return &criteo;
}
