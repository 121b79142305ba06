-- Channels have no quiet hours and no weekly summary any more: Alertmanager has both.

alter table notification_channel drop column quiet_hours, drop column time_zone, drop column weekly_summary, drop column summary_due_at;
-- Only quiet hours needed it.
alter table notification drop column severity;
