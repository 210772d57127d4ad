#include "edge_worker/ew_run.h"

void ew_saving_fini(ew_saving *saving)
{
    rt_parcel_end(&saving->out);
    rt_bytes_fini(&saving->bytes);
}

static rt_status send(void *context, rt_message *message, rt_error *error)
{
    ew_saving *saving = context;
    return rt_member_send(saving->member, message, error);
}

static rt_status go_on(ew_saving *saving, rt_error *error)
{
    for (size_t room; (room = rt_parcel_room(&saving->out)) > 0;) {
        const size_t at = (size_t)saving->out.sent + saving->out.filled;
        const rt_status status = rt_parcel_put(&saving->out, saving->bytes.data + at, room, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status ew_saving_begin(ew_saving *saving, rt_member *member, uint32_t self, ew_trainer *trainer,
                          rt_error *error)
{
    ew_saving_fini(saving);
    *saving = (ew_saving){.member = member};
    rt_status status = ew_trainer_get_model(trainer, &saving->bytes, error);
    if (status)
        return status;
    const rt_parcel_config config = {
        .send = send, .context = saving, .sender = self, .total = saving->bytes.size};
    status = rt_parcel_begin(&saving->out, &config, error);
    if (status)
        return status;
    return go_on(saving, error);
}

rt_status ew_saving_take(ew_saving *saving, const rt_message *message, rt_error *error)
{
    const rt_status status = rt_parcel_taken(&saving->out, message, "coordinator", error);
    if (status)
        return status;
    if (saving->out.refusal.status)
        return rt_fail(error, saving->out.refusal.status, "%s", saving->out.refusal.text);
    return go_on(saving, error);
}
