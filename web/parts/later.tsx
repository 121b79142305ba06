/** Pages that few people open are loaded when they are opened, so that the others appear earlier. */
import type { ComponentType } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { ApiError } from '../api.ts'
import { Failure, Loading } from './states.tsx'

export function later<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  return function Later(props) {
    const [Page, setPage] = useState<ComponentType<P>>()
    const [hasFailed, setFailed] = useState(false)
    useEffect(() => {
      load().then(
        (page) => setPage(() => page),
        () => setFailed(true),
      )
    }, [])
    // After an upgrade, the service no longer has the files of an open page.
    if (hasFailed) return <Failure error={new ApiError('', {})} retry={() => location.reload()} />
    return Page === undefined ? <Loading /> : <Page {...props} />
  }
}
