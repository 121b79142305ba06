/** What an operator can do with all members that match a filter, not only with those of the page. */
import { useState } from 'preact/hooks'
import { ApiError, post, queryOf } from '../api.ts'
import { useQuery } from '../hooks.ts'
import { Link } from '../router.tsx'
import { useRole } from '../session.ts'
import { fill } from '../texts/languages.ts'
import { useLocalized } from '../texts.ts'
import { Dialog } from './dialog.tsx'
import { Form, TextField } from './form.tsx'
import { Failure, Loading } from './states.tsx'
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
  const [open, setOpen] = useState<'tags' | 'export' | null>(null)
  const close = () => {
    setOpen(null)
    onChange()
  }
  return (
    <div class="actions all-matching">
      <span class="muted">{t.bulk.allMatching}</span>
      {isManager && (
        <button type="button" onClick={() => setOpen('tags')}>
          {t.bulk.tags}
        </button>
      )}
      <button type="button" onClick={() => setOpen('export')}>
        {t.bulk.export}
      </button>
      {isManager && (
        <Link class="button" href={`/accounts/${selection.account}/import`}>
          {t.imports.title}
        </Link>
      )}
      {open === 'tags' && <TagDialog {...selection} onClose={close} />}
      {open === 'export' && <ExportDialog {...selection} onClose={() => setOpen(null)} />}
    </div>
  )
}

const useCount = ({ account, filters }: Selection) =>
  useQuery<{ count: number }>(`/api/accounts/${account}/audience/count${queryOf(filters)}`)

function TagDialog({ onClose, ...selection }: Selection & { onClose: () => void }) {
  const { t, number } = useLocalized()
  const { account, filters } = selection
  const { data, error, reload } = useCount(selection)
  const [add, setAdd] = useState('')
  const [remove, setRemove] = useState('')
  const [typed, setTyped] = useState('')
  const [task, setTask] = useState<Task>()
  const count = data?.count ?? 0
  const mustType = count > TYPED_ABOVE
  const [added, removed] = [tagsOf(add), tagsOf(remove)]
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
              count > 0 && added.length + removed.length > 0 && (!mustType || typed.trim() === String(count))
            }
          >
            <TextField
              name="addTags"
              label={t.bulk.add}
              hint={t.bulk.tagsHint}
              value={add}
              onChange={setAdd}
            />
            <TextField name="removeTags" label={t.bulk.remove} value={remove} onChange={setRemove} />
            {mustType && (
              <TextField
                name="expectedCount"
                label={fill(t.bulk.confirm, { count: String(count) })}
                autocomplete="off"
                value={typed}
                onChange={setTyped}
              />
            )}
          </Form>
        </>
      )}
    </Dialog>
  )
}

const tagsOf = (text: string): string[] => [
  ...new Set(
    text
      .split(',')
      .map((tag) => tag.trim())
      .filter((tag) => tag !== ''),
  ),
]

const FORMATS = ['csv', 'ndjson'] as const

function ExportDialog({ onClose, ...selection }: Selection & { onClose: () => void }) {
  const { t, number } = useLocalized()
  const { account, filters } = selection
  const { data, error, reload } = useCount(selection)
  const path = (format: string) =>
    `/api/accounts/${account}/audience/export${queryOf({ ...filters, format })}`
  return (
    <Dialog title={t.bulk.exportTitle} onClose={onClose}>
      {error && <Failure error={error} retry={reload} />}
      {!error && data === undefined && <Loading />}
      {data && <p role="status">{fill(t.bulk.matching, { count: number(data.count) })}</p>}
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
