/** What an operator can do with all members that match a filter, not only with those of the page. */
import { useState } from 'preact/hooks'
import { ApiError, post, queryOf } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill, useLocalized } from '../texts.ts'
import { Dialog, DialogButton } from './dialog.tsx'
import { Form, listOf, TextField, useFields } from './form.tsx'
import { SaveSegment } from './segments.tsx'
import { Failure, Loaded, Loading } from './states.tsx'
import { type Task, TaskProgress } from './task.tsx'

/** Above this number of members, the operator types the number. */
const TYPED_ABOVE = 1_000

interface Selection {
  account: string
  /** the filters of GET /api/accounts/:id/members */
  filters: Record<string, string>
}

export function AllMatching({ onChange, ...selection }: Selection & { onChange: () => void }) {
  const { t } = useLocalized()
  const isManager = useRole('manager')
  return (
    <div class="actions all-matching">
      <span class="muted">{t.bulk.allMatching}</span>
      {isManager && (
        <DialogButton label={t.bulk.tags} onClosed={onChange}>
          {(close) => <TagDialog {...selection} onClose={close} />}
        </DialogButton>
      )}
      <DialogButton label={t.bulk.export}>
        {(close) => <ExportDialog {...selection} onClose={close} />}
      </DialogButton>
      {isManager && (
        <DialogButton label={t.bulk.erase} onClosed={onChange}>
          {(close) => <EraseDialog {...selection} onClose={close} />}
        </DialogButton>
      )}
      {isManager && !selection.filters.segment && <SaveSegment {...selection} />}
      {isManager && (
        <Link class="button" href={`/accounts/${selection.account}/import`}>
          {t.imports.title}
        </Link>
      )}
    </div>
  )
}

const useCount = ({ account, filters }: Selection) =>
  useQuery<{ count: number }>(`/api/accounts/${account}/audience/count${queryOf(filters)}`)

function TagDialog({ onClose, ...selection }: Selection & { onClose: () => void }) {
  const { t, number } = useLocalized()
  const { account, filters } = selection
  const { data, error, reload } = useCount(selection)
  const { values, field } = useFields({ addTags: '', removeTags: '', expectedCount: '' })
  const [task, setTask] = useState<Task>()
  const count = data?.count ?? 0
  const mustType = count > TYPED_ABOVE
  const [added, removed] = [tagsOf(values.addTags), tagsOf(values.removeTags)]
  const submit = async () => {
    try {
      const body = { filters, addTags: added, removeTags: removed, expectedCount: count }
      setTask((await post<{ job: Task }>(`/api/accounts/${account}/audience/tag`, body)).job)
    } catch (failure) {
      if (failure instanceof ApiError && failure.status === 409) reload()
      throw failure
    }
  }
  return (
    <Dialog title={t.bulk.tagsTitle} onClose={onClose}>
      {task && <TaskProgress started={task} />}
      {!task && error && <Failure error={error} retry={reload} />}
      {!task && !error && data === undefined && <Loading />}
      {!task && data && (
        <>
          <p role="status">{fill(t.bulk.matching, { count: number(count) })}</p>
          <Form
            submit={fill(t.bulk.submit, { count: number(count) })}
            onSubmit={submit}
            onCancel={onClose}
            isComplete={
              count > 0 &&
              added.length + removed.length > 0 &&
              (!mustType || values.expectedCount.trim() === String(count))
            }
          >
            <TextField {...field('addTags')} label={t.bulk.add} hint={t.bulk.tagsHint} />
            <TextField {...field('removeTags')} label={t.bulk.remove} />
            {mustType && (
              <TextField
                {...field('expectedCount')}
                label={fill(t.bulk.confirm, { count: String(count) })}
                autocomplete="off"
              />
            )}
          </Form>
        </>
      )}
    </Dialog>
  )
}

const tagsOf = (text: string): string[] => [...new Set(listOf(text))]

function EraseDialog({ onClose, ...selection }: Selection & { onClose: () => void }) {
  const { t, number } = useLocalized()
  const { account, filters } = selection
  const query = useCount(selection)
  const { values, field } = useFields({ expectedCount: '' })
  const [task, setTask] = useState<Task>()
  const submit = async (expectedCount: number) => {
    try {
      const body = { filters, expectedCount }
      setTask((await post<{ job: Task }>(`/api/accounts/${account}/audience/erase`, body)).job)
    } catch (failure) {
      if (failure instanceof ApiError && failure.status === 409) query.reload()
      throw failure
    }
  }
  return (
    <Dialog title={t.bulk.eraseTitle} onClose={onClose}>
      {task ? (
        <TaskProgress started={task} />
      ) : (
        <Loaded query={query}>
          {({ count }) => (
            <>
              <p role="status">{fill(t.bulk.matching, { count: number(count) })}</p>
              <p>{t.bulk.eraseText}</p>
              <Form
                submit={fill(t.bulk.eraseSubmit, { count: number(count) })}
                onSubmit={() => submit(count)}
                onCancel={onClose}
                isComplete={count > 0 && values.expectedCount.trim() === String(count)}
              >
                <TextField
                  {...field('expectedCount')}
                  label={fill(t.bulk.confirm, { count: String(count) })}
                  autocomplete="off"
                />
              </Form>
            </>
          )}
        </Loaded>
      )}
    </Dialog>
  )
}

const FORMATS = ['csv', 'ndjson', 'line-ids'] as const

function ExportDialog({ onClose, ...selection }: Selection & { onClose: () => void }) {
  const { t, number } = useLocalized()
  const { account, filters } = selection
  const query = useCount(selection)
  const path = (format: string) =>
    `/api/accounts/${account}/audience/export${queryOf({ ...filters, format })}`
  return (
    <Dialog title={t.bulk.exportTitle} onClose={onClose}>
      <Loaded query={query}>
        {({ count }) => <p role="status">{fill(t.bulk.matching, { count: number(count) })}</p>}
      </Loaded>
      <p>{t.bulk.exportText}</p>
      <footer class="actions">
        {FORMATS.map((format) => (
          <a key={format} class="button" href={path(format)} download>
            {t.bulk.formats[format]}
          </a>
        ))}
      </footer>
    </Dialog>
  )
}
