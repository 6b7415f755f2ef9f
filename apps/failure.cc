#include "apps/failure.h"

#include <exception>
#include <filesystem>
#include <new>

namespace sluice::apps {

using base::Error;
using base::ErrorKind;

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ErrorKind::host_memory, "an allocation failed"};
  } catch (const std::filesystem::filesystem_error& error) {
    return {ErrorKind::disk, error.what()};
  } catch (const std::exception& error) {
    return {ErrorKind::bug, error.what()};
  }
}

}  // namespace sluice::apps
