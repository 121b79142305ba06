-- 0.3.0 made the backlog of a resumed endpoint due in a task. A newer version does so in the transaction that resumes the endpoint, so it has
-- no step for a task that is still running.
update job set status = 'done', position = null, finished_at = now() where kind = 'endpoint.resume' and status = 'running';
