/** Takes a file by drag and drop, or with the keyboard. */
import { useState } from 'preact/hooks'

interface DropZoneProps {
  label: string
  /** file name extensions and media types, separated by commas */
  accept: string
  isDisabled?: boolean
  onFile: (file: File) => void
}

export function DropZone({ label, accept, isDisabled = false, onFile }: DropZoneProps) {
  const [isOver, setOver] = useState(false)
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the file input inside does the same with the keyboard
    <div
      class={`drop-zone ${isOver ? 'is-over' : ''}`}
      onDragOver={(event) => {
        event.preventDefault()
        setOver(true)
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault()
        setOver(false)
        const [file] = event.dataTransfer?.files ?? []
        if (file && !isDisabled) onFile(file)
      }}
    >
      <label>
        <span>{label}</span>
        <input
          type="file"
          accept={accept}
          disabled={isDisabled}
          onChange={(event) => {
            const [file] = event.currentTarget.files ?? []
            if (file) onFile(file)
            // The same file can be chosen again after a correction.
            event.currentTarget.value = ''
          }}
        />
      </label>
    </div>
  )
}
