/** Buttons that set up an account: verify, point LINE's webhook here, import followers, new chat address, remove. */
import { useState } from 'preact/hooks'
import { useAction } from '../hooks.ts'
import { perform, startJob, useRead } from '../operations.ts'
import { fill, useLocalized } from '../texts.ts'
import { CloseFooter, Dialog, DialogButton } from './dialog.tsx'
import { Form } from './form.tsx'
import { type Job, JobProgress } from './job.tsx'
import { Facts } from './page.tsx'
import { Removal } from './removal.tsx'
import { ActionFailure, Loaded } from './states.tsx'
import { Copyable } from './values.tsx'

export function VerifyAccount({
  id,
  testWebhook,
  onDone,
}: {
  id: string
  testWebhook: boolean
  onDone: (isVerified: boolean) => void
}) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const verify = async () => {
    const { verified } = await perform('account.verify', id, { testWebhook, proveRedelivery: false })
    onDone(verified)
  }
  const label = testWebhook ? t.account.verifyTest : t.account.verify
  return (
    <>
      <button
        type="button"
        class={testWebhook ? '' : 'primary'}
        disabled={isRunning}
        onClick={() => run(verify)}
      >
        {isRunning ? t.account.verifying : label}
      </button>
      <ActionFailure error={error} />
    </>
  )
}

export function PointWebhook({ id, onDone }: { id: string; onDone: () => void }) {
  const { t } = useLocalized()
  return (
    <DialogButton label={t.manage.pointWebhook} onClosed={onDone}>
      {(close) => <WebhookDialog id={id} onClose={close} />}
    </DialogButton>
  )
}

/** Shows what LINE has now before it is replaced. */
function WebhookDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const { t } = useLocalized()
  const [isSet, setSet] = useState(false)
  const query = useRead('account.webhook', id)
  const { data } = query
  const replace = async () => {
    await perform('account.set-webhook', id, { replaces: data?.url ?? null })
    setSet(true)
  }
  return (
    <Dialog title={t.manage.pointWebhook} onClose={onClose}>
      <Loaded query={query} title={query.error?.status === 400 ? t.failure.title : t.manage.webhookUnknown}>
        {({ url, wantedUrl }) => (
          <Facts
            items={[
              [t.manage.webhookNow, isSet ? wantedUrl : (url ?? t.manage.webhookNone)],
              [t.manage.webhookNew, wantedUrl],
            ]}
          />
        )}
      </Loaded>
      {(isSet || data?.isHere) && (
        <p class="notice good" role="status">
          {isSet ? t.manage.webhookSet : t.manage.webhookIsHere}
        </p>
      )}
      {data && !isSet && !data.isHere ? (
        <Form submit={t.manage.webhookReplace} onSubmit={replace} onCancel={onClose}>
          {data.url !== null && <p class="notice warning">{t.manage.webhookReplaces}</p>}
        </Form>
      ) : (
        <CloseFooter onClose={onClose} />
      )}
    </Dialog>
  )
}

export function ImportFollowers({ id }: { id: string }) {
  const { t } = useLocalized()
  const { isRunning, error, run } = useAction()
  const [job, setJob] = useState<Job>()
  const [isWorking, setWorking] = useState(false)
  const start = async () => {
    setJob(await startJob('account.followers', id))
    setWorking(true)
  }
  return (
    <>
      <button type="button" disabled={isRunning || isWorking} onClick={() => run(start)}>
        {t.manage.importFollowers}
      </button>
      <ActionFailure error={error} />
      {job && <JobProgress key={job.id} started={job} onEnd={() => setWorking(false)} />}
    </>
  )
}

export function NewCallbackAddress({ id }: { id: string }) {
  const { t } = useLocalized()
  return (
    <DialogButton label={t.manage.newCallback}>
      {(close) => <CallbackDialog id={id} onClose={close} />}
    </DialogButton>
  )
}

function CallbackDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const { t } = useLocalized()
  const [url, setUrl] = useState<string | null>(null)
  const renew = async () => setUrl((await perform('account.callback-address', id)).callbackUrl)
  return (
    <Dialog title={url === null ? t.manage.newCallback : t.manage.callbackUrl} onClose={onClose}>
      {url === null ? (
        <Form submit={t.manage.newCallback} onSubmit={renew} onCancel={onClose} isDangerous>
          <p>{t.manage.newCallbackText}</p>
        </Form>
      ) : (
        <>
          <p class="notice warning">{t.manage.addressOnce}</p>
          <Copyable text={url} label={t.manage.callbackUrl} />
          <CloseFooter onClose={onClose} />
        </>
      )}
    </Dialog>
  )
}

export function RemoveAccount(account: { id: string; name: string }) {
  const { t } = useLocalized()
  return (
    <DialogButton class="quiet-danger" label={t.manage.removeAccount}>
      {(close) => <RemovalDialog {...account} onClose={close} />}
    </DialogButton>
  )
}

function RemovalDialog({ id, name, onClose }: { id: string; name: string; onClose: () => void }) {
  const { t } = useLocalized()
  const { data, error } = useRead('account.contents', id)
  return (
    <Removal
      title={fill(t.manage.removeTitle, { name })}
      text={t.manage.removeText}
      name={name}
      contents={
        data && [
          [t.account.members, data.members],
          [t.manage.receivedEvents, data.receivedEvents],
          [t.account.endpoints, data.endpoints],
          [t.manage.waitingDeliveries, data.waitingDeliveries],
          [t.manage.apiKeys, data.apiKeys],
        ]
      }
      error={error}
      onRemove={(typed) => startJob('account.remove', id, { name: typed })}
      onClose={onClose}
    />
  )
}
