/** Buttons that save what the page has already loaded. */
import { fill, useLocalized } from '../texts.ts'

export function DownloadButton({
  label,
  file,
  type,
  textOf,
}: {
  label: string
  file: string
  /** media type */
  type: string
  textOf: () => string
}) {
  const { t } = useLocalized()
  const save = () => {
    const url = URL.createObjectURL(new Blob([textOf()], { type }))
    Object.assign(document.createElement('a'), { href: url, download: file }).click()
    // The browser reads it after the click.
    setTimeout(() => URL.revokeObjectURL(url), 60_000)
  }
  return (
    <button type="button" aria-label={fill(t.common.download, { file })} onClick={save}>
      {label}
    </button>
  )
}
